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

/* This process's place in the job that it was started in. */
typedef struct {
  int rank;      /* 0 to size - 1 */
  int size;      /* processes */
  int localRank; /* among the processes on its host, 0 to localSize - 1 */
  int localSize;
  const char* launcher; /* "tutti run", "torchrun", "variables", "pmix", "slurm" or "none"; not to be freed */
} tuttiWorld_t;

/* Finds it by what the engine that started the process says: RANK and WORLD_SIZE (of `tutti run`, of
 * torchrun, or set by hand), a PMIx server (mpirun of Open MPI, srun --mpi=pmix), Slurm's variables, in this
 * order; without any, a world of one. ncclInvalidUsage names the variable that is wrong or missing. Talks to
 * nobody but the PMIx server of this host. */
ncclResult_t tuttiWorldGet(tuttiWorld_t* world);

/* The id of a communicator over the whole world, one rank or several for each process: every process must
 * call this, and with PMIx it blocks until all have. One communicator can be made with it; further ones come
 * from ncclCommSplit. */
ncclResult_t tuttiWorldUniqueId(ncclUniqueId* uniqueId);

#ifdef __cplusplus
}
#endif

#endif
