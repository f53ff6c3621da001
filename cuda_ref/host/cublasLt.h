// Types and functions of cuBLASLt that cublas_v2.h declares; they decline the case.
#pragma once

#include "cublas_v2.h"
