// CUDA on a CPU: compiles the text of a .cu, rewritten by build/rewrite.py, with an ordinary C++ compiler.
//
// The threads of a block are fibers. Blocks run one after the other, all on the calling thread, and a launch returns
// when they have ended. Launch limits, barriers that not all threads reach and misaligned accesses become error codes.
// Shared memory is NaN until it is written. Threads run in ascending order up to the first barrier, in descending order
// up to the second, and so on, with the order reversed in every second block, so that missing barriers change results.
//
// Differences from a GPU:
//   - Accesses out of bounds are detected only in checked builds (checked.h).
//   - Blocks that wait for each other hang. So does a thread that spins on another thread's write without __nanosleep.
//     program.h ends both.
//   - Memory is consistent without fences, since nothing runs in parallel.
//   - Approximate intrinsics are exact.
//   - Launch bounds and registers have no limits.
//   - __activemask() contains all lanes that have not returned, whether they reach that place or not.
// common/common.cuh lists the features that cannot run here, and how a file declares that it uses them.
#pragma once

#include <initializer_list>

#include <math.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vector_types.h"

#include "quiet.h"

#include "runtime_api.h"

#include "memory_api.h"

#include "fiber.h"

#include "block.h"

#include "counted.h"

#ifdef CUDA_HOST_CHECKED
#include "checked.h"
#else
#include "unchecked.h"
#endif

#ifdef CUDA_HOST_PROGRAM
#include "program.h"
#endif

#include "barrier.h"

#include "warp.h"

#include "launch.h"

#include "device_functions.h"

#include "device_math.h"
