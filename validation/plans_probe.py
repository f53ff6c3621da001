import sys, time, random, os, glob
T0 = time.time()
import torch, triton
from triton_kernels import matmul as mt, matmul_gluon as mg, _few, _plan_matmul as pm, _plan_matmul_gluon as pg, _configs_matmul as cm, _configs_matmul_gluon as cg
from triton_kernels._tma import find_tma
from validation.matmul_plans import drawn, operands
pm.LONG_US = pg.LONG_US = 1e9
cd = triton.cdiv
auto_t, auto_g = mt.matmul_kernel, mg.matmul_kernel
w = lambda z: z % 8 == 0
forced = {}
def only_t(configs, args, **c): return [cm.config(*forced["tile"][:5])] if "tile" in forced else cm.planned(args, **c)
def problem(M, N, K): return pm.Problem(M, N, K, w(K), w(N), w(N), True, 132)
def gproblem(M, N, K): return pg.Problem(M, N, K, not w(K), not w(N), not w(N), 132)
def run_t(plan, a, b):
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device="cuda")
    if isinstance(plan, _few.Few):
        x, y, z = (b.t(), a.t(), c.t()) if b.shape[1] < a.shape[0] else (a, b, c)
        _few.multiply_few(plan, x, y, z); return c
    K = a.shape[1]; kp = K if plan.parts == 1 else cd(cd(K, 256), plan.parts) * 256
    mt.matmul_kernel = auto_t.fn
    try: mt._launch_tiles(a, b, c, None, None, "ieee", kp, plan.padded, cm.config(*plan.tile[:5]).all_kwargs())
    finally: mt.matmul_kernel = auto_t
    return c
def run_g(plan, a, b):
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device="cuda")
    old, oldp, olds = mg.best_of, mg.by_pointers_us, mg.launch
    def launch(kernel, grid, *args, **kw):
        if kernel is not auto_g: return olds(kernel, grid, *args, **kw)
        t = plan.tile; cfg = cg._config(t.consumers, t.N, 64, t.stages, t.group, BUFFERS=t.buffers).kwargs
        d = dict(a_desc=args[0], b_desc=args[1], c_desc=args[2], **kw, **cfg); cg.set_blocks(d)
        auto_g.fn[grid(cfg)](*args, **kw, **cfg, num_warps=4)
    mg.best_of, mg.by_pointers_us, mg.launch = (lambda x: (plan, 0.0)), (lambda *_: 1e9), launch
    try: mg._launch_planned(a, b, c)
    finally: mg.best_of, mg.by_pointers_us, mg.launch = old, oldp, olds
    return c
def name_t(p): return f"f/{p.columns}/{p.warps}/{p.parts}" if isinstance(p, _few.Few) else f"t/{pm.TILES.index(p.tile)}/{p.parts}/{int(p.padded)}"
def name_g(p): return f"g/{pg.TILES.index(p.tile)}/{p.parts}/{int(p.transposed)}"
def plans(M, N, K, rnd):
    found = {}
    al = (w(N), w(K), N == 1, K == 1); x, g = problem(M, N, K), gproblem(M, N, K)
    every = sorted(pm.candidates(x), key=lambda p: pm.predicted_us(p, x))
    tiles = [p for p in every if isinstance(p, pm.Tiles) and not (p.tile[:2] == (128, 64) and not (p.padded or w(K) and w(N)))]; fews = [p for p in every if isinstance(p, _few.Few)]
    least = pm.predicted_us(tiles[0], x)
    near = [p for p in tiles[8:60] if pm.predicted_us(p, x) < 2.5 * least]
    some = tiles[:8] + rnd.sample(near, min(4, len(near)))
    split = [p for p in near if p.parts > 1 and p not in some]
    some += rnd.sample(split, min(3, len(split)))
    for p in some: found[name_t(p)] = ((lambda a, b, p=p: run_t(p, a, b)), ("t", p.tile, p.parts > 1, p.padded, al, bool(M % 256 or N % 256 or K % 256)))
    some = fews[:5] + rnd.sample(fews[5:40], min(4, len(fews[5:40])))
    m = min(M, N)
    for p in some: found[name_t(p)] = ((lambda a, b, p=p: run_t(p, a, b)), ("f", p.columns, p.warps, p.parts > 1, M <= N, al, cd(m, 2)))
    every = sorted(pg.candidates(g), key=lambda p: pg.predicted_us(p, g)); least = pg.predicted_us(every[0], g)
    near = [p for p in every[4:30] if pg.predicted_us(p, g) < 1.6 * least]
    for p in every[:4] + rnd.sample(near, min(3, len(near))): found[name_g(p)] = ((lambda a, b, p=p: run_g(p, a, b)), ("g", p.tile, p.parts > 1, p.transposed, al[2:], M == 1))
    return found
base = [s for pair in zip(drawn(60, 201), drawn(60, 202)) for s in pair]
thin = [s for s in drawn(900, 203) if min(s[:2]) <= 4 and s[0] * s[1] * s[2] >= 2**20][:36]
shapes = [s for i, s in enumerate(base) if s[0] * s[1] * s[2] <= 2**36]
shapes = [x for i, s in enumerate(shapes) for x in ([s, thin[i // 3]] if i % 3 == 0 and i // 3 < len(thin) else [s])]
squares = [(n, n, n) for n in (1024, 2048, 4096, 8192)] + [(16, 14336, 4096), (4096, 14336, 4096), (4096, 4096, 14336), (512, 512, 512), (1536, 1536, 1536), (3072, 3072, 3072)]
if sys.argv[1] == "build":
    i, n, limit = map(int, sys.argv[2:]); seen = {}; count = {}
    rnd = random.Random(0)
    for s in shapes:
        for name, (f, key) in plans(*s, rnd).items(): seen.setdefault(key, (s, name, f)); count[key] = count.get(key, 0) + 1
    todo = sorted(seen, key=lambda k: -count[k])
    print("variants", len(todo), sum(count.values()), flush=True)
    keys = open(os.environ.get("OUT", "/tmp") + f"/keys{i}.txt", "w")
    for s in (squares + base)[i::n] if limit else []:
        try:
            a, b = operands(s, "nn", torch.bfloat16, 1); mt.matmul(a, b); mg.matmul(a, b); torch.cuda.synchronize()
        except Exception as e: print("ERR planned", s, repr(e)[:300], flush=True)
    print("planned", time.time() - T0, flush=True)
    for key in todo[i::n]:
        s, name, f = seen[key]
        if time.time() - T0 > limit: print("time over", flush=True); break
        try: f(*operands(s, "nn", torch.bfloat16, 1)); torch.cuda.synchronize(); print(repr(key), file=keys, flush=True)
        except Exception as e: print("ERR", s, name, repr(e)[:300], flush=True)
    print("done", time.time() - T0)
elif sys.argv[1] == "run":
    from suite.timing.target import target
    limit = float(sys.argv[2]); dev = target(torch.device("cuda")); rec = dev.recorder(); rec.start(); rec.collect(); rec.serialize_kernels()
    out = open(sys.argv[3], "w"); rnd = random.Random(0)
    known = {x.strip() for f in glob.glob(os.environ["OUT"] + "/keys*.txt") for x in open(f)}
    print("known", len(known), "start", time.time() - T0, flush=True)
    def measure(s, make, rounds):
        global rec
        ok, times = {}, {}
        def prep():
            a, b = operands(s, "nn", torch.bfloat16, 1); want = torch.matmul(a, b).float()
            for name, f in make.items():
                try:
                    f(a, b); e = float((f(a, b).float() - want).norm() / (want.norm() + 1e-30)); again = f(a, b)
                    if not e < 1e-2 or (name != "torch" and not torch.equal(again, f(a, b))): print("WRONG", s, name, e, flush=True)
                    ok[name] = lambda f=f: (f(a, b), None)[1]
                except Exception as e: print("ERR", s, name, repr(e)[:160], flush=True)
        try:
            rec.sample("setup", prep, dev.evict); rec.collect()
            for _ in range(rounds):
                for name, call in ok.items(): rec.sample(name, dev.evict, call)
                for x in rec.collect(): times.setdefault(x.name, []).append((x.us, [(k.name[:14], round((k.end - k.start) / 1e3, 2)) for k in x.activities]))
        except Exception as e:
            print("REC", s, repr(e)[:200], flush=True); rec.stop(); rec = dev.recorder(); rec.start(); rec.collect(); rec.serialize_kernels(); return
        for name, v in times.items():
            v.sort(key=lambda x: x[0]); print(*s, name, f"{v[len(v)//2][0]:.2f}", *(f"{k}:{u}" for k, u in v[len(v)//2][1]), file=out, flush=True)
    lines = {"torch": torch.matmul, "TRITON": mt.matmul, "GLUON": mg.matmul}
    for s in squares: measure(s, lines, 7)
    print("squares", time.time() - T0, flush=True)
    for s in base: measure(s, lines, 5)
    print("lines", time.time() - T0, flush=True)
    for s in shapes:
        if time.time() - T0 > limit: print("time over at", s); break
        measure(s, {"torch": torch.matmul, **{n: f for n, (f, key) in plans(*s, rnd).items() if not known or repr(key) in known}}, 3)
    print("end", time.time() - T0); rec.stop()
