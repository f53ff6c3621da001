// TMA (tensor memory accelerator): one thread copies a box of a matrix between global and shared memory,
// asynchronously. Elements outside the matrix are read as zeros and are not written. Coordinates: x counts along the
// contiguous dimension, y along the other one. Source: PTX ISA, "cp.async.bulk.tensor"; CUDA driver API,
// cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col.
#pragma once

#include <cuda.h>

#include "hopper/hopper.cuh"

__device__ __forceinline__ void tma_prefetch_descriptor(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Loads a box; `barrier` counts its bytes when they have arrived.
__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap* map, int x, int y, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            to),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

// Loads a box of a four-dimensional array; x counts along the contiguous dimension.
__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap* map, int x, int y, int z, int w,
                                         uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
        "[%6];" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
        : "memory");
}

// Loads a box of a three-dimensional array.
__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap* map, int x, int y, int z, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
        "[%5];" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
        : "memory");
}

// Loads pixels of an im2col map (encode_im2col_map), from the base pixel (x, y) of image `image` on, and from `channel`
// on: each is (tap_x, tap_y) away from its base pixel. The last base pixel of a row is followed by the next row or
// image.
__device__ __forceinline__ void tma_load_im2col(uint32_t to, const CUtensorMap* map, int channel, int x, int y,
                                                int image, uint16_t tap_x, uint16_t tap_y, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(to),
        "l"(map), "r"(channel), "r"(x), "r"(y), "r"(image), "r"(barrier), "h"(tap_x), "h"(tap_y)
        : "memory");
}

// Loads to the same address in every block whose bit is set in `cta_mask`; the same barrier of each counts the bytes.
__device__ __forceinline__ void tma_load_multicast(uint32_t to, const CUtensorMap* map, int x, int y, uint32_t barrier,
                                                   uint16_t cta_mask) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(cta_mask)
        : "memory");
}

__device__ __forceinline__ void tma_load_multicast(uint32_t to, const CUtensorMap* map, int x, int y, int z,
                                                   uint32_t barrier, uint16_t cta_mask) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(cta_mask)
        : "memory");
}

__device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t from, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x),
                 "r"(y), "r"(from)
                 : "memory");
}
__device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t from, int x, int y, int z, int w) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
                 "r"(x), "r"(y), "r"(z), "r"(w), "r"(from)
                 : "memory");
}
__device__ __forceinline__ void tma_store_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until all but the last PRIOR groups of this thread's stores have read their shared memory.
template <int PRIOR>
__device__ __forceinline__ void tma_store_wait_group_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PRIOR) : "memory");
}

// Waits until all groups of this thread's stores are complete, so that others can read the results.
__device__ __forceinline__ void tma_store_wait_complete() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Contiguous copies of a multiple of 16 bytes. bulk_add adds float32 numbers, each atomically.
__device__ __forceinline__ void bulk_load(uint32_t to, const void* from, int bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void bulk_store(float* to, uint32_t from, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void bulk_add(float* to, uint32_t from, int bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}

// Loads ROWS rows (m or n) of an operand from `row` on, and one stage of k from `k` on, by calls of load(to, x, y). A
// K-major operand takes one box. An MN-major one takes several, with 128 bytes of rows in each line.
template <typename T, bool MN_MAJOR, int ROWS, typename Load>
__device__ __forceinline__ void load_operand(uint32_t to, int row, int k, Load load) {
    if constexpr (MN_MAJOR) {
#pragma unroll
        for (int i = 0; i < ROWS; i += ROW_BYTES / sizeof(T)) load(to + i * ROW_BYTES, row + i, k);
    } else {
        load(to, k, row);
    }
}

// Looks up a function of libcuda, which is not linked. Null if the driver does not have it.
template <typename Function>
Function driver_function(const char* name) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found);
    return reinterpret_cast<Function>(error == cudaSuccess && found == cudaDriverEntryPointSuccess ? entry : nullptr);
}

// Calls encode(). Encoding needs a current context, which a new thread lacks: then makes the device's context current.
template <typename Encode>
bool with_context(Encode encode) {
    if (encode()) return true;
    int device;
    return cudaGetDevice(&device) == cudaSuccess && cudaSetDevice(device) == cudaSuccess && encode();
}

// Encodes an array of RANK dimensions, copied in boxes of 128 bytes by box_outer[0] by box_outer[1] ... (each at most
// 256). `strides` are those of the outer dimensions, in elements. The 16-byte chunks of a row of a box are swizzled:
// chunk c of row r is stored in the place of chunk c ^ (r % 8), so that the same chunk of eight rows covers all banks.
// Returns false if TMA cannot copy the array: base and strides must be multiples of 16 bytes.
template <int RANK>
bool encode_tensor_map(CUtensorMap* map, CUtensorMapDataType type, int element_bytes, const void* base,
                       const int64_t (&sizes)[RANK], const int64_t (&strides)[RANK - 1],
                       const int (&box_outer)[RANK - 1]) {
    static const auto encode = driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
    if (encode == nullptr) return false;
    cuuint64_t extents[RANK], bytes[RANK - 1];
    cuuint32_t box[RANK] = {cuuint32_t(ROW_BYTES / element_bytes)}, steps[RANK] = {1};
    for (int i = 0; i < RANK; ++i) extents[i] = cuuint64_t(sizes[i]);
    for (int i = 0; i + 1 < RANK; ++i) {
        bytes[i] = cuuint64_t(strides[i] * element_bytes);
        box[i + 1] = cuuint32_t(box_outer[i]);
        steps[i + 1] = 1;
    }
    return with_context([&] {
        return encode(map, type, RANK, const_cast<void*>(base), extents, bytes, box, steps,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
    });
}

// Encodes a matrix of `outer` rows of `inner` elements, `stride` elements apart, in boxes of `box_outer` rows.
inline bool encode_tensor_map(CUtensorMap* map, CUtensorMapDataType type, int element_bytes, const void* base,
                              int64_t inner, int64_t outer, int64_t stride, int box_outer) {
    return encode_tensor_map<2>(map, type, element_bytes, base, {inner, outer}, {stride}, {box_outer});
}

struct Float8 {  // e4m3: 4 bits of exponent, 3 of mantissa, no infinities
    uint8_t bits;
};

template <typename T>
constexpr CUtensorMapDataType TENSOR_MAP_TYPE = CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;  // rounds to tf32 while it copies
template <>
constexpr CUtensorMapDataType TENSOR_MAP_TYPE<__half> = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
template <>
constexpr CUtensorMapDataType TENSOR_MAP_TYPE<__nv_bfloat16> = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
template <>
constexpr CUtensorMapDataType TENSOR_MAP_TYPE<Float8> = CU_TENSOR_MAP_DATA_TYPE_UINT8;

// An operand of a matmul, a or b, as the launcher receives it.
struct MatrixOperand {
    const void* data;
    bool mn_major;   // contiguous along m (of a) or n (of b), otherwise along k
    int64_t rows;    // M or N
    int64_t stride;  // stride of the other dimension, in elements
};

// A K-major operand is copied in boxes of `box_rows` rows, an MN-major one in boxes of `box_k` terms, by default those
// of a stage.
template <typename T>
bool encode_operand_map(CUtensorMap* map, const MatrixOperand& x, int64_t K, int box_rows,
                        int box_k = ROW_BYTES / int(sizeof(T))) {
    return encode_tensor_map(map, TENSOR_MAP_TYPE<T>, sizeof(T), x.data, x.mn_major ? x.rows : K,
                             x.mn_major ? K : x.rows, x.stride, x.mn_major ? box_k : box_rows);
}

// Images as a convolution reads them: (images, height, width, channels) with strides in elements, channels contiguous.
// A load gives `pixels` successive base pixels in the order of images, rows and columns, with 128 bytes of channels
// each. Base pixels are `stride_x` and `stride_y` apart, and go from lower_x to width - 1 + upper_x, and likewise in y.
// A tap shifts them all. Pixels outside the image, and channels beyond the last, are zero.
struct Images {
    const void* data;
    int64_t channels, width, height, images;
    int64_t pitch_x, pitch_y, pitch_image;
    int lower_x, lower_y, upper_x, upper_y, stride_x, stride_y;
};

inline bool encode_im2col_map(CUtensorMap* map, CUtensorMapDataType type, int element_bytes, const Images& x,
                              int pixels) {
    static const auto encode = driver_function<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
    if (encode == nullptr) return false;
    const cuuint64_t extents[] = {cuuint64_t(x.channels), cuuint64_t(x.width), cuuint64_t(x.height),
                                  cuuint64_t(x.images)};
    const cuuint64_t bytes[] = {cuuint64_t(x.pitch_x * element_bytes), cuuint64_t(x.pitch_y * element_bytes),
                                cuuint64_t(x.pitch_image * element_bytes)};
    const int lower[] = {x.lower_x, x.lower_y}, upper[] = {x.upper_x, x.upper_y};
    const cuuint32_t steps[] = {1, cuuint32_t(x.stride_x), cuuint32_t(x.stride_y), 1};
    return with_context([&] {
        return encode(map, type, 4, const_cast<void*>(x.data), extents, bytes, lower, upper,
                      cuuint32_t(ROW_BYTES / element_bytes), cuuint32_t(pixels), steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
    });
}
