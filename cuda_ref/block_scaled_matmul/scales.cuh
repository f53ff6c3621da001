// The scales of groups as kernels on tensor cores read them.
#pragma once

#include "block_scaled_matmul/codes.cuh"

// Both arrays of scales. Strides are in elements: between rows of a, blocks of 128 rows of b, and groups.
struct BlockScales {
    const float *a, *b;
    int64_t a_row, a_group, b_block, b_group;
};
