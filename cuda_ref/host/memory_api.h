// The runtime's functions for memory. All of it is memory of the host; checked.h keeps that of the device apart.
#pragma once

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault,
};

namespace cuda_host {

// Where memory of a kernel comes from: an operand, cudaMalloc, cudaMallocManaged, cudaMallocHost, a variable.
enum Origin : unsigned char { OPERAND, DEVICE, MANAGED, PINNED, SYMBOL };

// In checked.h or unchecked.h.
static void* allocate(size_t bytes, Origin origin);
static const char* release(void* begin, bool pinned);  // says why it cannot; null if it has
static bool fits(const void* begin, size_t bytes, bool on_device, char* why, size_t size);
static void note_copy(void* to, const void* from, size_t bytes);  // from: null for a fill
static void note_address(const volatile void* variable);

CUDA_HOST_UNCHECKED static cudaError_t copy(void* to, const void* from, size_t bytes, bool to_device, bool from_device,
                                            bool any, int line) {
    char why[200];
    if (!any && !fits(to, bytes, to_device, why, sizeof why))
        return set_error(cudaErrorInvalidValue, "invalid argument: cudaMemcpy on line %d: its destination %s", line, why);
    if (!any && !fits(from, bytes, from_device, why, sizeof why))
        return set_error(cudaErrorInvalidValue, "invalid argument: cudaMemcpy on line %d: its source %s", line, why);
    memmove(to, from, bytes);
    note_copy(to, from, bytes);
    return cudaDeviceSynchronize();
}

CUDA_HOST_UNCHECKED static cudaError_t give(void** pointer, size_t bytes, Origin origin) {
    *pointer = allocate(bytes, origin);
    return *pointer != nullptr || bytes == 0 ? cudaSuccess : set_error(cudaErrorMemoryAllocation);
}

CUDA_HOST_UNCHECKED static cudaError_t take(void* pointer, bool pinned, int line) {
    const char* why = pointer == nullptr ? nullptr : release(pointer, pinned);
    if (why == nullptr) return cudaSuccess;
    return set_error(cudaErrorInvalidValue, "invalid argument: %s on line %d: %s", pinned ? "cudaFreeHost" : "cudaFree", line,
                     why);
}

}  // namespace cuda_host

template <typename T>
static cudaError_t cudaMalloc(T** pointer, size_t bytes) {
    return cuda_host::give(reinterpret_cast<void**>(pointer), bytes, cuda_host::DEVICE);
}
template <typename T>
static cudaError_t cudaMallocAsync(T** pointer, size_t bytes, cudaStream_t = nullptr) {
    return cudaMalloc(pointer, bytes);
}
template <typename T>
static cudaError_t cudaMallocManaged(T** pointer, size_t bytes, unsigned = 1) {
    return cuda_host::give(reinterpret_cast<void**>(pointer), bytes, cuda_host::MANAGED);
}
template <typename T>
static cudaError_t cudaMallocHost(T** pointer, size_t bytes) {
    return cuda_host::give(reinterpret_cast<void**>(pointer), bytes, cuda_host::PINNED);
}
static inline cudaError_t cudaFree(void* pointer, int line = __builtin_LINE()) {
    return cuda_host::take(pointer, false, line);
}
static inline cudaError_t cudaFreeAsync(void* pointer, cudaStream_t = nullptr, int line = __builtin_LINE()) {
    return cuda_host::take(pointer, false, line);
}
static inline cudaError_t cudaFreeHost(void* pointer, int line = __builtin_LINE()) {
    return cuda_host::take(pointer, true, line);
}

static inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                     int line = __builtin_LINE()) {
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return cuda_host::copy(to, from, bytes, to_device, from_device, kind == cudaMemcpyDefault, line);
}
static inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                          cudaStream_t = nullptr, int line = __builtin_LINE()) {
    return cudaMemcpy(to, from, bytes, kind, line);
}
CUDA_HOST_UNCHECKED static cudaError_t cudaMemset(void* to, int value, size_t bytes, int line = __builtin_LINE()) {
    char why[200];
    if (!cuda_host::fits(to, bytes, true, why, sizeof why))
        return cuda_host::set_error(cudaErrorInvalidValue, "invalid argument: cudaMemset on line %d: its destination %s",
                                    line, why);
    memset(to, value, bytes);
    cuda_host::note_copy(to, nullptr, bytes);
    return cudaDeviceSynchronize();
}
static inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = nullptr,
                                          int line = __builtin_LINE()) {
    return cudaMemset(to, value, bytes, line);
}

template <typename T>
static cudaError_t cudaMemcpyToSymbolAsync(T& to, const void* from, size_t bytes, size_t offset = 0,
                                           cudaMemcpyKind = cudaMemcpyHostToDevice, cudaStream_t = nullptr,
                                           int line = __builtin_LINE()) {
    if (offset + bytes > sizeof to)
        return cuda_host::set_error(cudaErrorInvalidValue, "invalid argument: cudaMemcpyToSymbol on line %d: %zu bytes from "
                                    "byte %zu of a variable of %zu", line, bytes, offset, sizeof to);
    return memcpy(reinterpret_cast<char*>(&to) + offset, from, bytes), cudaSuccess;
}
template <typename T>
static cudaError_t cudaMemcpyToSymbol(T& to, const void* from, size_t bytes, size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyHostToDevice, int line = __builtin_LINE()) {
    return cudaMemcpyToSymbolAsync(to, from, bytes, offset, kind, nullptr, line);
}
template <typename T>
static cudaError_t cudaMemcpyFromSymbol(void* to, const T& from, size_t bytes, size_t offset = 0,
                                        cudaMemcpyKind = cudaMemcpyDeviceToHost, int line = __builtin_LINE()) {
    if (offset + bytes > sizeof from)
        return cuda_host::set_error(cudaErrorInvalidValue, "invalid argument: cudaMemcpyFromSymbol on line %d: %zu bytes "
                                    "from byte %zu of a variable of %zu", line, bytes, offset, sizeof from);
    return memcpy(to, reinterpret_cast<const char*>(&from) + offset, bytes), cudaSuccess;
}
template <typename T>
static cudaError_t cudaGetSymbolAddress(void** pointer, const T& symbol) {
    cuda_host::note_address(&symbol);
    return *pointer = const_cast<void*>(static_cast<const volatile void*>(&symbol)), cudaSuccess;
}
