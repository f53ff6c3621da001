// The order in which a kernel visits the tiles of its output: what the matmul kernels whose blocks stay share.
#pragma once

#include "common.cuh"

// Divides numbers below 2^31 by one that the host knows, in some ten cycles; a division takes more than a hundred, for
// which the first copies of a block would wait.
struct Divisor {
    uint32_t factor;  // the first above 2^32 (2^shift / divisor - 1)
    int shift;        // the least for which 2^shift is not below the divisor

    explicit Divisor(uint32_t divisor) : shift(0) {
        while (uint64_t(1) << shift < divisor) ++shift;
        factor = uint32_t((((uint64_t(1) << shift) - divisor) << 32) / divisor + 1);
    }
    __device__ __forceinline__ int quotient(int x) const { return (__umulhi(x, factor) + x) >> shift; }
};

struct Tile {
    int m, n;
};

// Down the BAND rows of a band of tiles, then in the next column, then in the next band. So what is worked on at one
// time is nearly a square of the output, and the rows of a and columns of b that it needs are few enough for the L2
// cache. Blocks that are not in clusters are dealt to the device by whole GPCs (graphics processing clusters), 16 in a
// row to each. What the multiprocessors of a GPC ask for at one time the L2 cache delivers once; so 4 x 4 tiles, from a
// band of 4 rows, need less than 16 tiles of a column.
template <int BAND>
struct Bands {
    int tiles_m, tiles_n;
    Divisor band, last;  // by the tiles in a band, and by the rows of the last one

    Bands(int64_t tiles_m, int64_t tiles_n)
        : tiles_m(int(tiles_m)), tiles_n(int(tiles_n)), band(BAND * tiles_n), last((tiles_m - 1) % BAND + 1) {}

    __host__ __device__ __forceinline__ int count() const { return tiles_m * tiles_n; }
    __device__ __forceinline__ Tile operator[](int index) const {
        const int above = band.quotient(index) * BAND, within = index - above * tiles_n;
        const bool whole = above + BAND <= tiles_m;
        const int column = whole ? within / BAND : last.quotient(within);
        return {above + within - column * (whole ? BAND : tiles_m - above), column};
    }
};
