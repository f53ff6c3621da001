// CUDA on a CPU: gives the text of a .cu, after _rewrite.py, its meaning under an ordinary C++ compiler.
//
// The threads of a block are fibers, the blocks run one after another, all on the calling thread, and a launch returns
// when they are done. What a GPU would refuse, fault at or never finish comes back as an error code: launch limits,
// barriers that not all threads reach, misaligned accesses. Shared memory holds NaN until it is written. Threads run in
// ascending order up to the first barrier, descending to the second and so on, every other block the other way round,
// so that a missing barrier shows.
//
// Differences to a GPU: accesses out of bounds are not noticed; blocks that wait for one another hang, and so does a
// thread that spins on what another has to write, unless it calls __nanosleep; memory is consistent without a fence, as
// nothing runs at the same time; the approximate intrinsics are exact; launch bounds and registers limit nothing;
// __activemask() names all lanes that have not returned, whether they will come to that place or not.
// common.cuh tells what cannot be run at all, and how a file says so.
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "vector_types.h"

#include "runtime_api.h"

#include "fiber.h"

#include "block.h"

#include "barrier.h"

#include "warp.h"

#include "launch.h"

#include "device_functions.h"

#include "device_math.h"
