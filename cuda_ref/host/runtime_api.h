// The part of the runtime API that launchers call: errors, attributes, occupancy, streams. memory_api.h has memory.
//
// The emulated device has the limits of compute capability 9.0, but only four multiprocessors, so that a persistent
// kernel loops more than once even in a small test.
#pragma once

#define CUDA_HOST_ERRORS(X)                                                     \
    X(cudaSuccess, 0, "no error")                                               \
    X(cudaErrorInvalidValue, 1, "invalid argument")                             \
    X(cudaErrorMemoryAllocation, 2, "out of memory")                            \
    X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")       \
    X(cudaErrorNotSupported, 801, "operation not supported")                    \
    X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered") \
    X(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch") \
    X(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")   \
    X(cudaErrorIllegalInstruction, 715, "an illegal instruction was encountered") \
    X(cudaErrorMisalignedAddress, 716, "misaligned address")                    \
    X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                \
    X(cudaErrorUnknown, 999, "unknown error")

#define CUDA_HOST_ENUM(name, code, text) name = code,
enum cudaError { CUDA_HOST_ERRORS(CUDA_HOST_ENUM) };
#undef CUDA_HOST_ENUM
typedef cudaError cudaError_t;
typedef struct CUstream_st* cudaStream_t;

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};
enum cudaSharedCarveout {
    cudaSharedmemCarveoutDefault = -1,
    cudaSharedmemCarveoutMaxL1 = 0,
    cudaSharedmemCarveoutMaxShared = 100,
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxBlockDimX = 2,
    cudaDevAttrMaxBlockDimY = 3,
    cudaDevAttrMaxBlockDimZ = 4,
    cudaDevAttrMaxGridDimX = 5,
    cudaDevAttrMaxGridDimY = 6,
    cudaDevAttrMaxGridDimZ = 7,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMaxRegistersPerBlock = 12,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxRegistersPerMultiprocessor = 82,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrMaxBlocksPerMultiprocessor = 106,
};

namespace cuda_host {

constexpr int MAX_THREADS = 1024, WARP = 32, MULTIPROCESSORS = 4;
constexpr size_t SHARED_DEFAULT = 48 << 10, SHARED_OPTIN = 227 << 10, SHARED_MULTIPROCESSOR = 228 << 10;

static cudaError_t last_error = cudaSuccess;
static char detail[512];  // description of the last failure
static cudaError_t detail_of = cudaSuccess;
static char unreported[512];  // description of the first failure that nobody has asked for; empty if there is none
static bool has_declined = false;
static cudaError_t failed = cudaSuccess;  // the error of a kernel, until cudaGetLastError returns it

static inline cudaError_t set_error(cudaError_t error) {
    if (error != cudaSuccess) {
        last_error = error;
        detail_of = cudaSuccess;
    }
    return error;
}

template <typename... Arguments>
static cudaError_t set_error(cudaError_t error, const char* format, Arguments... arguments) {
    snprintf(detail, sizeof detail, format, arguments...);
    if (unreported[0] == 0) memcpy(unreported, detail, sizeof unreported);
    last_error = detail_of = error;
    return error;
}

// Declines the case: the launcher has called what cannot be emulated. The error stays until its text is asked for.
template <typename... Arguments>
static void declined(const char* format, Arguments... arguments) {
    set_error(cudaErrorNotSupported, format, arguments...);
    has_declined = true;
}

// Limits set by cudaFuncSetAttribute, by kernel.
struct SharedLimit {
    const void* kernel;
    size_t bytes;
};
static SharedLimit shared_limits[1024];
static int shared_limit_count = 0;

// The dynamic shared memory limit of a kernel. Null stands for a kernel with an unknown address.
static inline size_t shared_limit(const void* kernel) {
    size_t limit = SHARED_DEFAULT;
    for (int i = 0; i < shared_limit_count; i++) {
        const SharedLimit& allowed = shared_limits[i];
        if ((kernel == nullptr || allowed.kernel == kernel) && allowed.bytes > limit) limit = allowed.bytes;
    }
    return limit;
}

// True if cudaFuncSetAttribute has allowed so much dynamic shared memory: then static memory does not count against 48 KB.
static inline bool is_allowed_shared(const void* kernel, size_t bytes) {
    for (int i = 0; i < shared_limit_count; i++)
        if ((kernel == nullptr || shared_limits[i].kernel == kernel) && shared_limits[i].bytes >= bytes) return true;
    return false;
}

template <typename... P>
static const void* address(void (*kernel)(P...)) {
    return reinterpret_cast<const void*>(kernel);
}
static inline const void* address(const void* kernel) { return kernel; }

}  // namespace cuda_host

extern "C" inline __attribute__((used)) const char* cudaGetErrorName(cudaError_t error) {
    switch (static_cast<int>(error)) {
#define CUDA_HOST_CASE(name, code, text) \
    case code: return #name;
        CUDA_HOST_ERRORS(CUDA_HOST_CASE)
#undef CUDA_HOST_CASE
    }
    return "unrecognized error code";
}

extern "C" inline __attribute__((used)) const char* cudaGetErrorString(cudaError_t error) {
    if (error == cudaErrorNotSupported) cuda_host::has_declined = false;  // told; the next call begins anew
    if (error != cudaSuccess) cuda_host::unreported[0] = 0;
    if (error != cudaSuccess && error == cuda_host::detail_of) return cuda_host::detail;
    switch (static_cast<int>(error)) {
#define CUDA_HOST_CASE(name, code, text) \
    case code: return text;
        CUDA_HOST_ERRORS(CUDA_HOST_CASE)
#undef CUDA_HOST_CASE
    }
    return "unrecognized error code";
}

static inline cudaError_t cudaPeekAtLastError() {
    return cuda_host::has_declined ? cudaErrorNotSupported : cuda_host::last_error;
}
static inline cudaError_t cudaGetLastError() {
    const cudaError_t error = cudaPeekAtLastError();
    cuda_host::unreported[0] = 0;
    cuda_host::last_error = cuda_host::failed = cudaSuccess;
    return error;
}

template <typename K>
static cudaError_t cudaFuncSetAttribute(K* function, cudaFuncAttribute attribute, int value) {
    using namespace cuda_host;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || size_t(value) > SHARED_OPTIN)
        return set_error(cudaErrorInvalidValue, "invalid argument: %d bytes of dynamic shared memory; a block has at most %zu",
                         value, SHARED_OPTIN);
    const void* kernel = address(function);
    int i = 0;
    while (i < shared_limit_count && shared_limits[i].kernel != kernel) i++;
    if (i == int(sizeof shared_limits / sizeof *shared_limits)) return set_error(cudaErrorMemoryAllocation);
    if (i == shared_limit_count) shared_limit_count++;
    shared_limits[i] = {kernel, size_t(value)};
    return cudaSuccess;
}

static inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
static inline cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : cuda_host::set_error(cudaErrorInvalidValue);
}
// Errors of a kernel, which later calls return; a launch that was refused is not among them.
static inline cudaError_t cudaDeviceSynchronize() {
    return cuda_host::has_declined ? cudaErrorNotSupported : cuda_host::failed;
}
static inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaDeviceSynchronize(); }

static inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    using namespace cuda_host;
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock:
        case cudaDevAttrMaxBlockDimX:
        case cudaDevAttrMaxBlockDimY: *value = MAX_THREADS; break;
        case cudaDevAttrMaxBlockDimZ: *value = 64; break;
        case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; break;
        case cudaDevAttrMaxGridDimY:
        case cudaDevAttrMaxGridDimZ: *value = 65535; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = SHARED_DEFAULT; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = SHARED_OPTIN; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = SHARED_MULTIPROCESSOR; break;
        case cudaDevAttrMaxRegistersPerBlock:
        case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
        case cudaDevAttrWarpSize:
        case cudaDevAttrMaxBlocksPerMultiprocessor: *value = 32; break;
        case cudaDevAttrMultiProcessorCount: *value = MULTIPROCESSORS; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
        case cudaDevAttrL2CacheSize: *value = 50 << 20; break;
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
        default: return set_error(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount, maxThreadsPerBlock, maxThreadsPerMultiProcessor, warpSize;
    int regsPerBlock, regsPerMultiprocessor, l2CacheSize, maxGridSize[3], maxThreadsDim[3];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
};
static inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    using namespace cuda_host;
    *properties = {"CPU", 9, 0, MULTIPROCESSORS, MAX_THREADS, 2048, WARP, 65536, 65536, 50 << 20,
                   {0x7fffffff, 65535, 65535}, {MAX_THREADS, MAX_THREADS, 64}, size_t(1) << 36,
                   SHARED_DEFAULT, SHARED_OPTIN, SHARED_MULTIPROCESSOR};
    return cudaSuccess;
}
// Events take no time: a launch has ended when it returns.
typedef struct CUevent_st* cudaEvent_t;
static inline cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = nullptr, cudaSuccess; }
static inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr) { return cudaSuccess; }
static inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
static inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return *ms = 0, cudaSuccess; }
static inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }

static inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }

// Counts only the limits by threads and shared memory; registers are not known here.
template <typename K>
static cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, K*, int threads, size_t dynamic_bytes) {
    using namespace cuda_host;
    if (threads < 1 || threads > MAX_THREADS) return set_error(cudaErrorInvalidValue);
    const int by_threads = 2048 / ((threads + WARP - 1) / WARP * WARP);
    const int by_shared = int(SHARED_MULTIPROCESSOR / (dynamic_bytes + 1024));
    *blocks = by_threads < by_shared ? by_threads : by_shared;
    if (*blocks > 32) *blocks = 32;
    return cudaSuccess;
}

// Work of a stream has ended when the call that begins it returns.
static inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return *stream = nullptr, cudaSuccess; }
static inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
