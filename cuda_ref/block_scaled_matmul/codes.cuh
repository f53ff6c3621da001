// The groups of codes that share a scale.
#pragma once

#include "common/float8.cuh"

constexpr int GROUP = 128;  // terms of k, and rows of b, that share a scale
