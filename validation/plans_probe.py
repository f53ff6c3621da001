import sys, time, random, statistics, os
T0 = time.time()
import torch, triton
from triton.experimental.gluon import language as gl
from triton_kernels import _few, matmul as mt, matmul_gluon as mg, _configs_matmul as cm, _configs_matmul_gluon as cg, _parts
from triton_kernels._tma import both_tma_matrices, tma_output
from triton_kernels._launch import persistent_grid
from validation.matmul_plans import drawn, operands
P = 132
T = [*cm.HALF_CONFIGS, cm.config(64,128,64,4,3), cm.config(32,64,128,4,4), cm.config(32,32,128,4,4), cm.config(64,256,64,8,4), cm.config(32,128,64,4,4), cm.config(128,32,64,4,5), cm.config(16,16,256,4,4)]
G = [cg._config(2,256,64,4,16), cg._config(2,128,64,6,8), cg._config(2,64,64,8,8,BUFFERS=1), cg._config(1,128,64,8,16), cg._config(1,64,64,12,16,BUFFERS=1), cg._config(1,32,64,12,16,BUFFERS=1), cg._config(1,16,64,12,16,BUFFERS=1), cg._config(1,256,64,5,16)]
mt.matmul_kernel = mt.matmul_kernel.fn
cd = triton.cdiv
def triton_tile(i, parts, pad, a, b):
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device="cuda"); x, y, z = a, b, c
    if a.stride(0) == b.stride(0) == 1 and a.shape[1] > 1: x, y, z = b.t(), a.t(), c.t()
    K = a.shape[1]; steps = cd(K, 256); kp = cd(steps, parts) * 256 if parts > 1 else K
    mt._launch_tiles(x, y, z, None, None, "ieee", kp, pad, T[i].all_kwargs()); return c
def few(cols, warps, parts, swap, a, b):
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device="cuda")
    x, y, z = (b.t(), a.t(), c.t()) if swap else (a, b, c)
    _few.multiply_few(_few.Few(cols, warps, parts), x, y, z); return c
def gluon(i, parts, swap, a, b):
    (M, K), N = a.shape, b.shape[1]; e = 2
    left, right = both_tma_matrices(a, b); out = torch.empty((M, N), dtype=a.dtype, device="cuda")
    kw = G[i].kwargs
    m, n = M, N
    if swap: left, right, m, n = mg._transposed(right), mg._transposed(left), N, M
    kp = cd(cd(K, 64), parts) * 64 if parts > 1 else K; parts = cd(K, kp)
    def go(target, c_rows):
        d = [mg._descriptor(x) for x in (left, right, target)]
        args = dict(a_desc=d[0], b_desc=d[1], c_desc=d[2], A_ROWS=left.row_major, B_ROWS=right.row_major, C_ROWS=c_rows, **kw); cg.set_blocks(args)
        mg.matmul_kernel.fn[persistent_grid(cg.tile_count(kw, m, n) * parts, P)](*d, None, None, None, m, n, K, kp, A_ROWS=left.row_major, B_ROWS=right.row_major, C_ROWS=c_rows, A_IN_REGISTERS=False, DTYPE=gl.bfloat16, PROMOTED=False, SPLIT=parts > 1, num_warps=4, **kw)
    if parts > 1:
        bm = 64 * kw["CONSUMERS"]; rows, cols = cd(m, bm) * bm, cd(n, 4) * 4
        sums = torch.empty((parts * rows, cols), dtype=torch.float32, device="cuda")
        go(mg.TmaMatrix(sums, cols, True), True)
        v = sums.view(parts, rows, cols)[:, :m, :n]
        _parts.add_strided_parts(v.transpose(1, 2) if swap else v, out)
    else:
        with tma_output(out, e) as target: go(target, target.row_major != swap)
    return out
def plans(M, N, K, rnd):
    found = {"torch": (torch.matmul, ("torch",))}
    al = (M % 8 == 0, N % 8 == 0, K % 8 == 0, M == 1, N == 1, K == 1)
    least = min(cd(M, c.kwargs["BLOCK_M"]) * cd(N, c.kwargs["BLOCK_N"]) * c.kwargs["BLOCK_M"] * c.kwargs["BLOCK_N"] for c in T)
    some = []
    for i, c in enumerate(T):
        if i in (1, 4): continue
        bm, bn = c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]; tiles = cd(M, bm) * cd(N, bn)
        if tiles * bm * bn > 2.5 * least or (bm >= 128 and bm * bn >= 2**14 and tiles < 20 and K < 4096) or tiles * bm * bn // (bm * bn) > 40 * P: continue
        for parts in (1, 2, 4, 8, 16, 32):
            if parts > 1 and (parts > cd(K, 256) or tiles * parts > 3 * P): break
            if parts == 1 and cd(K, 256) > 40 and tiles < 30: continue
            for pad in (False, True):
                if pad and (all(al[:3]) or min(M, N, K) < 32 or M * N * K < 2**22): continue
                if not pad and not (al[1] and al[2]) and bm * bn > 64 * 128: continue
                some.append((f"t/{i}/{parts}/{int(pad)}", (lambda a, b, i=i, parts=parts, pad=pad: triton_tile(i, parts, pad, a, b)), ("t", i, parts > 1, pad, al[1:3], al[4:], bool(M % 256 or N % 256 or K % 256))))
    rnd.shuffle(some); some = some[:14]
    fs = []
    if min(M, N) <= 16 or M * N * K <= 2**23:
        swap = N < M; m, n = (N, M) if swap else (M, N)
        rows = (not swap)
        for cols in ((16, 64, 256) if rows else (2, 8, 32)):
            for warps in (4, 8) if cols in (64, 8) else (4,):
                for parts in (1, 4, 16, 64):
                    if parts > 1 and (parts > cd(K, 256) or cd(n, cols) * parts > 12 * P): break
                    if cd(K, parts) * cols > 2**17 or cols > 4 * n: continue
                    fs.append((f"f/{cols}/{warps}/{parts}", (lambda a, b, z=(cols, warps, parts, swap): few(*z, a, b)), ("f", cols, warps, parts > 1, rows, al[1] if rows else al[2], al[2], min(16, triton.next_power_of_2(m)), K == 1)))
    rnd.shuffle(fs); some += fs[:8]
    gs = []
    for swap in (False, True):
        m, n = (N, M) if swap else (M, N)
        for i, c in enumerate(G):
            bm, bn = 64 * c.kwargs["CONSUMERS"], c.kwargs["BLOCK_N"]; tiles = cd(m, bm) * cd(n, bn)
            if swap and n > 64: continue
            if cd(n, bn) * bn > 1.6 * max(n, 16) and bn > 16 and cd(m, bm) * bm > 2 * m: continue
            if bn > 2 * max(n, 16) or (bn <= 32 and n > 64) or tiles > 40 * P: continue
            for parts in (1, 2, 4, 8, 16, 32):
                if parts > 1 and (parts > cd(K, 256) or tiles * parts > 2 * P): break
                if parts == 1 and K > 8192 and tiles < 30: continue
                gs.append((f"g/{i}/{parts}/{int(swap)}", (lambda a, b, z=(i, parts, swap): gluon(*z, a, b)), ("g", i, parts > 1, swap, n == 1, m == 1)))
    rnd.shuffle(gs); some += gs[:9]
    for name, f, key in some: found[name] = (f, key)
    return found
shapes = [s for pair in zip(drawn(60, 201), drawn(60, 202)) for s in pair if s[0] * s[1] * s[2] <= 2**37]
if sys.argv[1] == "build":
    i, n, limit = map(int, sys.argv[2:]); seen = {}; count = {}
    rnd = random.Random(0)
    for s in shapes:
        for name, (f, key) in plans(*s, rnd).items(): seen.setdefault(key, (s, name, f)); count[key] = count.get(key, 0) + 1
    todo = sorted(seen, key=lambda k: -count[k])
    print("variants", len(todo), sum(count.values()), flush=True)
    keys = open(os.environ.get("OUT", "/tmp") + f"/keys{i}.txt", "w")
    for key in todo[i::n]:
        s, name, f = seen[key]
        if time.time() - T0 > limit: print("time over", flush=True); break
        try: f(*operands(s, "nn", torch.bfloat16, 1)); torch.cuda.synchronize(); print(repr(key), file=keys, flush=True)
        except Exception as e: print("ERR", s, name, repr(e)[:300], flush=True)
    print("done", time.time() - T0)
else:
    from suite.timing.target import target
    limit = float(sys.argv[2]); dev = target(torch.device("cuda")); rec = dev.recorder(); rec.start(); rec.collect(); rec.serialize_kernels()
    out = open(sys.argv[3], "w"); rnd = random.Random(0)
    import glob
    known = {x.strip() for f in glob.glob(os.environ["OUT"] + "/keys*.txt") for x in open(f)}
    print("known", len(known), flush=True)
    for s in shapes:
        if time.time() - T0 > limit: print("time over at", s); break
        ps = plans(*s, rnd); ok = {}; errs = {}
        def prep():
            a, b = operands(s, "nn", torch.bfloat16, 1); want = torch.matmul(a, b).float()
            for name, (f, key) in ps.items():
                if known and repr(key) not in known: continue
                try:
                    f(a, b); errs[name] = float((f(a, b).float() - want).norm() / (want.norm() + 1e-30))
                    if not errs[name] < 1e-2: print("WRONG", s, name, errs[name], flush=True)
                    ok[name] = lambda f=f: (f(a, b), None)[1]
                except Exception as e: print("ERR", s, name, repr(e)[:160], flush=True)
        times = {}
        try:
            rec.sample("setup", prep, dev.evict); rec.collect()
            for _ in range(3):
                for name, call in ok.items(): rec.sample(name, dev.evict, call)
                for x in rec.collect(): times.setdefault(x.name, []).append((x.us, [(k.name[:14], round((k.end - k.start) / 1e3, 2)) for k in x.activities]))
        except Exception as e:
            print("REC", s, repr(e)[:200], flush=True); rec.stop(); rec = dev.recorder(); rec.start(); rec.collect(); rec.serialize_kernels(); continue
        for name, v in times.items():
            v.sort(key=lambda x: x[0]); print(*s, name, f"{v[len(v)//2][0]:.2f}", *(f"{k}:{u}" for k, u in v[len(v)//2][1]), file=out, flush=True)
    print("end", time.time() - T0); rec.stop()
