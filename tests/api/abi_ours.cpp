// SPDX-License-Identifier: BSD-3-Clause
#include "nccl.h"
#define ABI_TABLE abi_of_tutti
#include "abi.inc"
