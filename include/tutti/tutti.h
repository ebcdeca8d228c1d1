/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tutti's additions to NCCL's API: the host as a device, and host streams. C and C++. */
#ifndef TUTTI_TUTTI_H_
#define TUTTI_TUTTI_H_

#include "../nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0

/* For tuttiSetDevice: the host, device number 0. */
#define TUTTI_DEVICE_HOST 0

/* Communicators that this thread makes from now on belong to host device `device` (>= 0; a label that
 * ncclCommCuDevice gives back). Without a call it is 0. Never blocks. */
ncclResult_t tuttiSetDevice(int device);

/* A host stream: an ordered queue that a thread of its own works off, so that communication goes on while
 * the caller computes. It may be passed wherever NCCL's API takes a cudaStream_t. Thread-safe. */
ncclResult_t tuttiStreamCreate(cudaStream_t* stream);

/* Waits for what is queued, then frees. NULL is allowed. */
ncclResult_t tuttiStreamDestroy(cudaStream_t stream);

/* Blocks until everything queued so far has finished; returns the first error of those operations, once. */
ncclResult_t tuttiStreamSynchronize(cudaStream_t stream);

/* ncclSuccess: idle; ncclInProgress: still working; otherwise the first error, which stays to be collected
 * by tuttiStreamSynchronize. Never blocks. */
ncclResult_t tuttiStreamQuery(cudaStream_t stream);

/* Queues function(argument), to be run by the stream's thread after what is before it. It must not call
 * tuttiStreamSynchronize or tuttiStreamDestroy on the same stream. */
ncclResult_t tuttiStreamAddCallback(cudaStream_t stream, void (*function)(void* argument), void* argument);

/* The id that every process derives alike from "host:port" and a text that only they know (may be NULL): for
 * jobs whose processes know an address but cannot pass an id on. The process that joins as rank 0 listens
 * there. One communicator at a time per address and secret. */
ncclResult_t tuttiUniqueIdAt(ncclUniqueId* uniqueId, const char* address, const char* secret);

#ifdef __cplusplus
}
#endif

#endif
