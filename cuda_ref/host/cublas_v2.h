// cuBLAS is not emulated: a source that includes its header compiles, and a call declines the case.
#pragma once

#include "cuda_runtime.h"

typedef struct cublasContext* cublasHandle_t;
typedef struct cublasLtContext* cublasLtHandle_t;
enum cublasStatus_t {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_INTERNAL_ERROR = 14,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE };
enum cublasMath_t {
    CUBLAS_DEFAULT_MATH = 0,
    CUBLAS_TENSOR_OP_MATH = 1,
    CUBLAS_PEDANTIC_MATH = 2,
    CUBLAS_TF32_TENSOR_OP_MATH = 3,
};
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 };
enum cublasComputeType_t {
    CUBLAS_COMPUTE_16F = 64,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_32F_FAST_16F = 74,
    CUBLAS_COMPUTE_32F_FAST_16BF = 75,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
};
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14, CUDA_R_8F_E4M3 = 28 };
typedef cudaDataType_t cudaDataType;

#define CUDA_HOST_CUBLAS(name)                                                                    \
    template <typename... Arguments>                                                               \
    static cublasStatus_t name(Arguments...) {                                                     \
        cuda_host::declined("%s is called: cuBLAS runs on a GPU only; this is a CPU", #name);     \
        return CUBLAS_STATUS_NOT_SUPPORTED;                                                        \
    }
CUDA_HOST_CUBLAS(cublasSgemm)
CUDA_HOST_CUBLAS(cublasHgemm)
CUDA_HOST_CUBLAS(cublasDgemm)
CUDA_HOST_CUBLAS(cublasGemmEx)
CUDA_HOST_CUBLAS(cublasSgemmEx)
CUDA_HOST_CUBLAS(cublasSgemmStridedBatched)
CUDA_HOST_CUBLAS(cublasHgemmStridedBatched)
CUDA_HOST_CUBLAS(cublasGemmStridedBatchedEx)
CUDA_HOST_CUBLAS(cublasSgemmBatched)
CUDA_HOST_CUBLAS(cublasGemmBatchedEx)
CUDA_HOST_CUBLAS(cublasSgemv)
CUDA_HOST_CUBLAS(cublasSgeam)
CUDA_HOST_CUBLAS(cublasSdot)
CUDA_HOST_CUBLAS(cublasSasum)
CUDA_HOST_CUBLAS(cublasSaxpy)
CUDA_HOST_CUBLAS(cublasSscal)
CUDA_HOST_CUBLAS(cublasScopy)
CUDA_HOST_CUBLAS(cublasSnrm2)
CUDA_HOST_CUBLAS(cublasLtMatmul)
#undef CUDA_HOST_CUBLAS

// Handles are made and set up without effect.
#define CUDA_HOST_CUBLAS(name)                    \
    template <typename... Arguments>               \
    static cublasStatus_t name(Arguments...) {     \
        return CUBLAS_STATUS_SUCCESS;              \
    }
CUDA_HOST_CUBLAS(cublasCreate)
CUDA_HOST_CUBLAS(cublasDestroy)
CUDA_HOST_CUBLAS(cublasSetStream)
CUDA_HOST_CUBLAS(cublasSetMathMode)
CUDA_HOST_CUBLAS(cublasSetPointerMode)
CUDA_HOST_CUBLAS(cublasSetWorkspace)
CUDA_HOST_CUBLAS(cublasLtCreate)
CUDA_HOST_CUBLAS(cublasLtDestroy)
#undef CUDA_HOST_CUBLAS
static inline const char* cublasGetStatusString(cublasStatus_t) { return "CUBLAS_STATUS_NOT_SUPPORTED"; }
