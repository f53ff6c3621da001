"""Operations that several processes compute together: one process a rank, started by torch's elastic agent.

`RanksPool` has the requests and replies of a worker (`suite/worker/protocol.py`), so a run treats both alike. Each
rank answers the same request; `merge.py` makes one reply of these, which names the rank of a fault.

    pool.py, process.py    the parent's side: sends a request to all ranks, waits for all, ends them after a fault
    launcher.py            a process that runs the elastic agent, which forks the ranks and waits for their ends
    rank_main.py           inside a rank: joins the process group, and answers requests
    session.py, problem.py, implementation.py, sampling.py    a worker's session, in step with the other ranks
"""
