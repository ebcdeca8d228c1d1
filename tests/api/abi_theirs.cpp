// SPDX-License-Identifier: BSD-3-Clause
#include NCCL_HEADER_OF_CUDA
#define ABI_TABLE abi_of_cuda
#include "abi.inc"
