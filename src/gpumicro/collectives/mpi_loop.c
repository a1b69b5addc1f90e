/* The timed loop between MPI ranks: what collectives/native_loop.py builds with mpicc and loads.
 * Handles come as the addresses of mpi4py's own: the two must be of one MPI, which gpumicro_same_mpi checks. */
#include <mpi.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALLTOALL, SENDRECV, SCATTER, GATHER, BARRIER };
enum { TAG = 7 };

typedef struct {
    int32_t kind, in_place, count, root, rank, size;
    void *send, *receive; /* in place: all data are in receive */
    MPI_Comm *comm;
    MPI_Datatype *type;
    MPI_Op *op;
} Call;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int run(const Call *c) {
    const MPI_Comm comm = *c->comm;
    const MPI_Datatype type = *c->type;
    const int n = c->count, root = c->root, at_root = c->rank == root, in_place = c->in_place;
    const int after = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    const void *given = in_place ? MPI_IN_PLACE : c->send; /* of collectives in which every rank receives */
    const void *sent = in_place ? c->receive : c->send;    /* of a rank that only sends */
    switch (c->kind) {
    case ALL_REDUCE: return MPI_Allreduce(given, c->receive, n, type, *c->op, comm);
    case ALL_GATHER: return MPI_Allgather(given, n, type, c->receive, n, type, comm);
    case REDUCE_SCATTER: return MPI_Reduce_scatter_block(given, c->receive, n, type, *c->op, comm);
    case BROADCAST: return MPI_Bcast(c->receive, n, type, root, comm);
    case REDUCE: return MPI_Reduce(at_root ? given : sent, at_root ? c->receive : NULL, n, type, *c->op, root, comm);
    case ALLTOALL: return MPI_Alltoall(given, n, type, c->receive, n, type, comm);
    case SENDRECV:
        if (in_place) return MPI_Sendrecv_replace(c->receive, n, type, after, TAG, before, TAG, comm, MPI_STATUS_IGNORE);
        return MPI_Sendrecv(c->send, n, type, after, TAG, c->receive, n, type, before, TAG, comm, MPI_STATUS_IGNORE);
    case SCATTER:
        if (at_root) return MPI_Scatter(sent, n, type, in_place ? MPI_IN_PLACE : c->receive, n, type, root, comm);
        return MPI_Scatter(NULL, n, type, c->receive, n, type, root, comm);
    case GATHER: return MPI_Gather(at_root ? given : sent, n, type, at_root ? c->receive : NULL, n, type, root, comm);
    case BARRIER: return MPI_Barrier(comm);
    default: return MPI_ERR_ARG;
    }
}

/* Whether mpi4py's MPI_COMM_WORLD, of so many bytes, is ours. Calls nothing of MPI. */
int gpumicro_same_mpi(const void *world, size_t bytes) {
    const MPI_Comm ours = MPI_COMM_WORLD;
    return bytes == sizeof ours && memcmp(world, &ours, bytes) == 0;
}

/* One run, not timed. MPI's error code. */
int gpumicro_run(const Call *call) { return run(call); }

/* count runs, each after a barrier: nanoseconds of CLOCK_MONOTONIC before and after each. MPI's error code. */
int gpumicro_spans(const Call *call, int64_t count, int64_t *starts, int64_t *ends) {
    for (int64_t i = 0; i < count; ++i) {
        int wrong = MPI_Barrier(*call->comm);
        if (wrong != MPI_SUCCESS) return wrong;
        starts[i] = now();
        wrong = run(call);
        ends[i] = now();
        if (wrong != MPI_SUCCESS) return wrong;
    }
    return MPI_SUCCESS;
}

/* count runs in a row; nanoseconds of them all. MPI's error code. */
int gpumicro_row(const Call *call, int64_t count, int64_t *span) {
    const int64_t begun = now();
    for (int64_t i = 0; i < count; ++i) {
        const int wrong = run(call);
        if (wrong != MPI_SUCCESS) return wrong;
    }
    *span = now() - begun;
    return MPI_SUCCESS;
}
