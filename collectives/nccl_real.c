/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "collectives/nccl_real.h"

#include "collectives/nccl_api.h"
#include "sim/base/dynlib.h"
#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of larger messages NCCL makes no more connections; two buffers of it always find room. */
#define MOST_MESSAGE_BYTES (64 * BASE_MIB)
#define EXCHANGE_BYTES     BASE_MIB

/* One rank of this process. */
typedef struct {
    uint32_t rank;
    int ordinal;
    topo_cuda_stream_t stream;
    bool has_stream;
    coll_job_t job;
    coll_comms_t comms;
    void **handles;           /* by communicator of the plan, NULL = not there; owned */
    coll_nccl_comm_t *models; /* alike */
    /* Of the step that is under way. */
    const coll_use_t *use;
    uint32_t place; /* in the communicator */
    void *from, *to;
    size_t free_before;
} member_t;

struct coll_nccl_real {
    coll_nccl_setup_t setup;
    coll_nccl_api_t api;
    void *library;
    int version;
    coll_plan_t plan;
    member_t *members; /* n_members; owned */
    uint32_t n_members;
    bool has_failed;
    coll_nccl_step_t *steps; /* of this process; after the play, on process 0, of all; owned */
    uint32_t n_steps;
};

/* ---- calls ---- */

static base_status_t cuda_failed(const coll_nccl_real_t *r, const char *call, int error,
                                 base_err_t *err)
{
    return base_err_set(err, BASE_ERR_IO, "%s: %s (%d)", call,
                        topo_cuda_runtime_text(r->setup.cuda, error), error);
}

static base_status_t nccl_failed(const coll_nccl_real_t *r, const char *call, int error,
                                 base_err_t *err)
{
    return base_err_set(err, BASE_ERR_IO, "%s: %s (%d)", call, r->api.ncclGetErrorString(error),
                        error);
}

/* Call a function of the runtime, and leave the function around it when that fails. */
#define CUDA(r, err, name, ...)                                                                    \
    do {                                                                                           \
        int error_ = (r)->setup.cuda->rt.name(__VA_ARGS__);                                        \
        if (error_ != 0)                                                                           \
            return cuda_failed(r, #name, error_, err);                                             \
    } while (0)

/* The same of NCCL, whose work may still be under way. */
#define NCCL(r, err, name, ...)                                                                    \
    do {                                                                                           \
        int error_ = (r)->api.name(__VA_ARGS__);                                                   \
        if (error_ != 0 && error_ != COLL_NCCL_IN_PROGRESS)                                        \
            return nccl_failed(r, #name, error_, err);                                             \
    } while (0)

/* ---- waiting ---- */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* Wait a moment for something that began at `since_ns`, unless that has no end any more. */
static base_status_t wait_on(const coll_nccl_real_t *r, uint64_t since_ns, const char *what,
                             base_err_t *err)
{
    uint64_t limit_ns = coll_world_limit_ns(r->setup.world);
    if (coll_world_is_alarmed(r->setup.world))
        return base_err_set(err, BASE_ERR_TIMEOUT, "ended because another process failed");
    if (now_ns() - since_ns > limit_ns)
        return base_err_set(err, BASE_ERR_IO, "%s did not end within %.3g s", what,
                            (double)limit_ns / 1e9);
    nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    return BASE_OK;
}

static base_status_t wait_comm(const coll_nccl_real_t *r, void *comm, const char *what,
                               base_err_t *err)
{
    uint64_t since_ns = now_ns();
    for (;;) {
        int state = 0;
        NCCL(r, err, ncclCommGetAsyncError, comm, &state);
        if (state == 0)
            return BASE_OK;
        if (state != COLL_NCCL_IN_PROGRESS)
            return nccl_failed(r, what, state, err);
        base_status_t status = wait_on(r, since_ns, what, err);
        if (status != BASE_OK)
            return status;
    }
}

static base_status_t wait_stream(const coll_nccl_real_t *r, const member_t *m, const char *what,
                                 base_err_t *err)
{
    uint64_t since_ns = now_ns();
    CUDA(r, err, cudaSetDevice, m->ordinal);
    for (;;) {
        int error = r->setup.cuda->rt.cudaStreamQuery(m->stream);
        if (error == 0)
            return BASE_OK;
        if (error != TOPO_CUDA_NOT_READY)
            return cuda_failed(r, "cudaStreamQuery", error, err);
        base_status_t status = wait_on(r, since_ns, what, err);
        if (status != BASE_OK)
            return status;
    }
}

/* ---- one step ---- */

static base_status_t measure(const coll_nccl_real_t *r, const member_t *m, size_t *free_p,
                             base_err_t *err)
{
    size_t total;
    CUDA(r, err, cudaSetDevice, m->ordinal);
    CUDA(r, err, cudaDeviceSynchronize);
    CUDA(r, err, cudaMemGetInfo, free_p, &total);
    return BASE_OK;
}

/* Bytes of the two buffers of a use, the larger of sent and received. */
static uint64_t buffer_bytes(const coll_plan_comm_t *comm, const coll_use_t *use)
{
    if (use->op == COLL_OP_ALL_TO_ALL || use->op == COLL_OP_SEND_RECV)
        return EXCHANGE_BYTES;
    uint64_t bytes = base_u64_min(use->message_bytes, MOST_MESSAGE_BYTES);
    return base_u64_round_up(base_u64_max(bytes, 1), (uint64_t)comm->n * sizeof(float));
}

static base_status_t send_and_receive(const coll_nccl_real_t *r, const member_t *m,
                                      const coll_plan_comm_t *comm, void *handle, base_err_t *err)
{
    const size_t half = EXCHANGE_BYTES / 2;
    uint32_t peer;
    for (uint32_t i = 0; i < m->use->n_send; i++)
        if (coll_plan_place(comm, m->use->send_to[i], &peer))
            NCCL(r, err, ncclSend, (char *)m->from + i * half, half, COLL_NCCL_UINT8, (int)peer,
                 handle, m->stream);
    for (uint32_t i = 0; i < m->use->n_recv; i++)
        if (coll_plan_place(comm, m->use->recv_from[i], &peer))
            NCCL(r, err, ncclRecv, (char *)m->to + i * half, half, COLL_NCCL_UINT8, (int)peer,
                 handle, m->stream);
    return BASE_OK;
}

static base_status_t send_to_all(const coll_nccl_real_t *r, const member_t *m,
                                 const coll_plan_comm_t *comm, void *handle, base_err_t *err)
{
    const size_t part = EXCHANGE_BYTES / comm->n;
    for (uint32_t i = 0; i < comm->n; i++) {
        NCCL(r, err, ncclSend, (char *)m->from + i * part, part, COLL_NCCL_UINT8, (int)i, handle,
             m->stream);
        NCCL(r, err, ncclRecv, (char *)m->to + i * part, part, COLL_NCCL_UINT8, (int)i, handle,
             m->stream);
    }
    return BASE_OK;
}

/* In a group. */
static base_status_t start_use(const coll_nccl_real_t *r, const member_t *m,
                               const coll_plan_comm_t *comm, void *handle, base_err_t *err)
{
    uint64_t bytes = buffer_bytes(comm, m->use), part = bytes / comm->n;
    switch (m->use->op) {
    case COLL_OP_ALL_REDUCE:
        NCCL(r, err, ncclAllReduce, m->from, m->to, bytes / sizeof(float), COLL_NCCL_FLOAT32,
             COLL_NCCL_SUM, handle, m->stream);
        break;
    case COLL_OP_BROADCAST:
        NCCL(r, err, ncclBroadcast, m->from, m->to, bytes, COLL_NCCL_UINT8, 0, handle, m->stream);
        break;
    case COLL_OP_ALL_GATHER:
        NCCL(r, err, ncclAllGather, m->from, m->to, part, COLL_NCCL_UINT8, handle, m->stream);
        break;
    case COLL_OP_REDUCE_SCATTER:
        NCCL(r, err, ncclReduceScatter, m->from, m->to, part / sizeof(float), COLL_NCCL_FLOAT32,
             COLL_NCCL_SUM, handle, m->stream);
        break;
    case COLL_OP_ALL_TO_ALL:
        return send_to_all(r, m, comm, handle, err);
    default:
        return send_and_receive(r, m, comm, handle, err);
    }
    return BASE_OK;
}

static base_status_t start_member(coll_nccl_real_t *r, member_t *m, const coll_plan_step_t *step,
                                  const coll_nccl_id_t *id, base_err_t *err)
{
    const coll_plan_comm_t *comm = &r->plan.comms[step->comm];
    coll_nccl_config_t config = { .size = sizeof(config),
                                  .magic = COLL_NCCL_CONFIG_MAGIC,
                                  .version = COLL_NCCL_CONFIG_VERSION,
                                  .blocking = 0 };
    CUDA(r, err, cudaSetDevice, m->ordinal);
    if (m->use != NULL)
        return start_use(r, m, comm, m->handles[step->comm], err);
    NCCL(r, err, ncclCommInitRankConfig, &m->handles[step->comm], (int)comm->n, *id, (int)m->place,
         &config);
    return BASE_OK;
}

/* The group ends in any case. */
static base_status_t start_group(coll_nccl_real_t *r, member_t **here, uint32_t n,
                                 const coll_plan_step_t *step, const coll_nccl_id_t *id,
                                 base_err_t *err)
{
    NCCL(r, err, ncclGroupStart);
    base_status_t status = BASE_OK;
    for (uint32_t i = 0; i < n && status == BASE_OK; i++)
        status = start_member(r, here[i], step, id, err);
    int error = r->api.ncclGroupEnd();
    if (status == BASE_OK && error != 0 && error != COLL_NCCL_IN_PROGRESS)
        return nccl_failed(r, "ncclGroupEnd", error, err);
    return status;
}

static base_status_t prepare(coll_nccl_real_t *r, member_t *m, const coll_plan_step_t *step,
                             base_err_t *err)
{
    const coll_plan_comm_t *comm = &r->plan.comms[step->comm];
    const coll_comm_t *own = coll_plan_find(comm, &m->job, m->rank, &m->comms);
    m->use = step->use == COLL_PLAN_CREATION ? NULL : &own->uses[step->use];
    CUDA(r, err, cudaSetDevice, m->ordinal);
    if (m->use != NULL) {
        CUDA(r, err, cudaMalloc, &m->from, buffer_bytes(comm, m->use));
        CUDA(r, err, cudaMalloc, &m->to, buffer_bytes(comm, m->use));
    }
    return measure(r, m, &m->free_before, err);
}

static void note(coll_nccl_real_t *r, member_t *m, const coll_plan_step_t *step, size_t free_after)
{
    const coll_comm_t *own =
        coll_plan_find(&r->plan.comms[step->comm], &m->job, m->rank, &m->comms);
    coll_nccl_comm_t *model = &m->models[step->comm];
    coll_nccl_step_t s = { .rank = m->rank,
                           .comm = step->comm,
                           .use = step->use,
                           .index = (uint32_t)(step - r->plan.steps) };
    s.real_bytes = (int64_t)m->free_before - (int64_t)free_after;
    if (m->use == NULL) {
        const coll_plan_comm_t *comm = &r->plan.comms[step->comm];
        coll_spread_t spread = own->spread;
        coll_spread_place(&spread, &r->setup.nccl.machine, comm->ranks, comm->n, m->rank);
        coll_nccl_comm_init(model, &r->setup.nccl, &spread);
        s.model_bytes = model->bytes.bytes;
    } else {
        s.model_bytes =
            coll_nccl_comm_use(model, m->use->op, m->use->message_bytes, &m->use->peers).bytes;
    }
    r->steps = base_xrealloc(r->steps, r->n_steps + 1, sizeof(*r->steps));
    r->steps[r->n_steps++] = s;
}

static base_status_t free_buffers(const coll_nccl_real_t *r, member_t *m, base_err_t *err)
{
    void *buffers[] = { m->from, m->to };
    int first = 0;
    m->from = m->to = NULL;
    for (int i = 0; i < 2; i++) {
        int error = buffers[i] != NULL ? r->setup.cuda->rt.cudaFree(buffers[i]) : 0;
        first = first != 0 ? first : error;
    }
    return first != 0 ? cuda_failed(r, "cudaFree", first, err) : BASE_OK;
}

static base_status_t finish(coll_nccl_real_t *r, member_t *m, const coll_plan_step_t *step,
                            base_err_t *err)
{
    char what[COLL_COMM_NAME + 40];
    size_t free_after = 0;
    snprintf(what, sizeof(what), "%s of communicator %s",
             m->use == NULL ? "creation" : coll_op_name(m->use->op),
             r->plan.comms[step->comm].name);
    base_status_t status = wait_comm(r, m->handles[step->comm], what, err);
    if (status == BASE_OK && m->use != NULL)
        status = wait_stream(r, m, what, err);
    if (status == BASE_OK)
        status = measure(r, m, &free_after, err);
    if (status == BASE_OK)
        note(r, m, step, free_after);
    return status;
}

static base_status_t do_step(coll_nccl_real_t *r, const coll_plan_step_t *step,
                             const coll_nccl_id_t *id, base_err_t *err)
{
    member_t **here = base_xcalloc(r->n_members, sizeof(*here));
    uint32_t n = 0;
    base_status_t status = BASE_OK;
    for (uint32_t i = 0; i < r->n_members; i++)
        if (coll_plan_place(&r->plan.comms[step->comm], r->members[i].rank, &r->members[i].place))
            here[n++] = &r->members[i];
    for (uint32_t i = 0; i < n && status == BASE_OK; i++)
        status = prepare(r, here[i], step, err);
    if (status == BASE_OK && n > 0)
        status = start_group(r, here, n, step, id, err);
    for (uint32_t i = 0; i < n && status == BASE_OK; i++)
        status = finish(r, here[i], step, err);
    for (uint32_t i = 0; i < n && status == BASE_OK; i++)
        status = free_buffers(r, here[i], err);
    free(here);
    return status;
}

/* ---- all steps ---- */

/* From process 0 to all; false: there is none, somebody has failed. */
static bool share_id(coll_nccl_real_t *r, base_status_t *status, coll_nccl_id_t *id_p,
                     base_err_t *err)
{
    bool is_root = coll_world_process(r->setup.world) == 0;
    char *data = NULL;
    size_t n = sizeof(*id_p);
    if (is_root && *status == BASE_OK && !coll_world_is_alarmed(r->setup.world)) {
        int error = r->api.ncclGetUniqueId(id_p);
        if (error != 0)
            *status = nccl_failed(r, "ncclGetUniqueId", error, err);
        else
            data = id_p->internal;
    }
    coll_world_broadcast(r->setup.world, &data, &n);
    if (data != NULL && !is_root) {
        memcpy(id_p, data, sizeof(*id_p));
        free(data);
    }
    return data != NULL;
}

static base_status_t do_steps(coll_nccl_real_t *r, base_err_t *err)
{
    base_status_t status = BASE_OK;
    for (uint32_t i = 0; i < r->plan.n_steps; i++) {
        const coll_plan_step_t *step = &r->plan.steps[i];
        coll_nccl_id_t id = { .internal = "" };
        if (step->use == COLL_PLAN_CREATION && !share_id(r, &status, &id, err))
            break;
        if (status != BASE_OK)
            continue; /* take ids until process 0 hears of it */
        status = do_step(r, step, &id, err);
        if (status != BASE_OK)
            coll_world_alarm(r->setup.world);
    }
    if (status == BASE_OK && coll_world_is_alarmed(r->setup.world))
        status = base_err_set(err, BASE_ERR_TIMEOUT, "ended because another process failed");
    return status;
}

/* What a process tells process 0 in the end: this, and its steps. */
typedef struct {
    base_status_t status;
    char text[400];
} told_t;

/* Process 0: who failed first, in words, else all steps. */
static void take_in(coll_nccl_real_t *r, const coll_blob_t *blobs, base_err_t *trouble)
{
    coll_world_t *world = r->setup.world;
    coll_nccl_step_t *steps = NULL;
    uint32_t n_steps = 0;
    for (uint32_t i = 0; i < coll_world_n_processes(world); i++) {
        told_t told;
        memcpy(&told, blobs[i].data, sizeof(told));
        /* Who only stopped because of another says so with BASE_ERR_TIMEOUT. */
        if (told.status != BASE_OK &&
            (trouble->text[0] == '\0' ||
             (trouble->status == BASE_ERR_TIMEOUT && told.status != BASE_ERR_TIMEOUT)))
            base_err_set(trouble, told.status, "NCCL: process %" PRIu32 " on %s: %s", i,
                         coll_world_host(world, i), told.text);
        uint32_t n = (uint32_t)((blobs[i].n - sizeof(told)) / sizeof(*steps));
        steps = base_xrealloc(steps, n_steps + n + 1, sizeof(*steps));
        memcpy(steps + n_steps, blobs[i].data + sizeof(told), n * sizeof(*steps));
        n_steps += n;
    }
    free(r->steps);
    r->steps = steps;
    r->n_steps = n_steps;
}

static int by_rank(const void *a_p, const void *b_p)
{
    const coll_nccl_step_t *a = a_p, *b = b_p;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Everybody together: the outcome of all, which is everybody's. */
static base_status_t agree(coll_nccl_real_t *r, base_status_t status, const base_err_t *mine,
                           base_err_t *err)
{
    coll_world_t *world = r->setup.world;
    told_t told = { .status = status };
    base_err_t trouble = { .text = "" };
    coll_blob_t *blobs;
    if (status != BASE_OK)
        snprintf(told.text, sizeof(told.text), "%.399s", mine->text);
    size_t n_steps = r->n_steps * sizeof(*r->steps), n = sizeof(told) + n_steps;
    char *data = base_xcalloc(n, 1);
    memcpy(data, &told, sizeof(told));
    if (n_steps > 0)
        memcpy(data + sizeof(told), r->steps, n_steps);
    coll_world_collect(world, data, n, &blobs);
    free(data);
    if (coll_world_process(world) == 0) {
        take_in(r, blobs, &trouble);
        if (r->n_steps > 0)
            qsort(r->steps, r->n_steps, sizeof(*r->steps), by_rank);
    }
    coll_blobs_free(blobs, coll_world_n_processes(world));
    char *verdict = trouble.text;
    n = strlen(verdict);
    coll_world_broadcast(world, &verdict, &n);
    status = n > 0 ? base_err_set(err, BASE_ERR_IO, "%s", verdict) : BASE_OK;
    if (verdict != trouble.text)
        free(verdict);
    r->has_failed = r->has_failed || status != BASE_OK;
    return status;
}

base_status_t coll_nccl_real_play(coll_nccl_real_t *real, base_err_t *err)
{
    base_err_t mine = { .text = "" };
    return agree(real, do_steps(real, &mine), &mine, err);
}

/* ---- beginning ---- */

enum { BUS_TEXT = 32 };

/* What a process tells process 0 at first: this, and the addresses of its GPUs. */
typedef struct {
    bool has_failed;
    char text[COLL_NCCL_WHY];
} offer_t;

static base_status_t look_up_gpus(const coll_nccl_setup_t *setup, uint32_t n, char *buses,
                                  base_err_t *err)
{
    for (uint32_t i = 0; i < n; i++) {
        int error = setup->cuda->rt.cudaDeviceGetPCIBusId(buses + (size_t)i * BUS_TEXT, BUS_TEXT,
                                                          setup->ordinals[i]);
        if (error != 0)
            return base_err_set(err, BASE_ERR_IO, "NCCL: cudaDeviceGetPCIBusId: %s (%d)",
                                topo_cuda_runtime_text(setup->cuda, error), error);
    }
    return BASE_OK;
}

/* Process 0: why NCCL is not for these, or whose call failed. */
static void judge(const coll_nccl_setup_t *setup, const coll_blob_t *blobs, offer_t *verdict)
{
    coll_world_t *world = setup->world;
    uint32_t n = setup->world_size;
    struct gpu {
        const char *host, *bus;
    } *gpus = base_xcalloc(n, sizeof(*gpus));
    for (uint32_t i = 0; i < coll_world_n_processes(world) && verdict->text[0] == '\0'; i++) {
        memcpy(verdict, blobs[i].data, sizeof(*verdict));
        if (verdict->text[0] != '\0')
            break;
        uint32_t first, n_here;
        coll_world_share_of(world, i, &first, &n_here);
        for (uint32_t k = first; k < first + n_here; k++) {
            gpus[k].host = coll_world_host(world, i);
            gpus[k].bus = blobs[i].data + sizeof(offer_t) + (size_t)(k - first) * BUS_TEXT;
            for (uint32_t j = 0; j < k && verdict->text[0] == '\0'; j++)
                if (strcmp(gpus[j].host, gpus[k].host) == 0 &&
                    strcmp(gpus[j].bus, gpus[k].bus) == 0)
                    snprintf(verdict->text, sizeof(verdict->text),
                             "ranks %" PRIu32 " and %" PRIu32
                             " share the GPU %.31s of %.64s, which "
                             "NCCL refuses",
                             j, k, gpus[k].bus, gpus[k].host);
        }
    }
    free(gpus);
}

/* Everybody together: the same verdict for all. */
static offer_t decide(const coll_nccl_setup_t *setup, const offer_t *mine, const char *buses,
                      uint32_t n)
{
    offer_t verdict = { .text = "" };
    size_t n_bytes = sizeof(*mine) + (size_t)n * BUS_TEXT;
    char *data = base_xcalloc(n_bytes, 1);
    coll_blob_t *blobs;
    memcpy(data, mine, sizeof(*mine));
    memcpy(data + sizeof(*mine), buses, (size_t)n * BUS_TEXT);
    coll_world_collect(setup->world, data, n_bytes, &blobs);
    if (coll_world_process(setup->world) == 0)
        judge(setup, blobs, &verdict);
    coll_blobs_free(blobs, coll_world_n_processes(setup->world));
    free(data);
    char *word = (char *)&verdict;
    size_t n_word = sizeof(verdict);
    coll_world_broadcast(setup->world, &word, &n_word);
    if (word != (char *)&verdict) {
        memcpy(&verdict, word, sizeof(verdict));
        free(word);
    }
    return verdict;
}

static base_status_t make_members(coll_nccl_real_t *r, base_err_t *err)
{
    uint32_t first;
    coll_world_share(r->setup.world, &first, &r->n_members);
    r->members = base_xcalloc(r->n_members, sizeof(*r->members));
    for (uint32_t i = 0; i < r->n_members; i++) {
        member_t *m = &r->members[i];
        m->rank = first + i;
        m->ordinal = r->setup.ordinals[i];
        r->setup.job_of(r->setup.arg, m->rank, &m->job);
        coll_comms_of_rank(&m->job, m->rank, &m->comms);
        m->handles = base_xcalloc(r->plan.n_comms + 1, sizeof(*m->handles));
        m->models = base_xcalloc(r->plan.n_comms + 1, sizeof(*m->models));
        CUDA(r, err, cudaSetDevice, m->ordinal);
        CUDA(r, err, cudaStreamCreateWithFlags, &m->stream, TOPO_CUDA_STREAM_NON_BLOCKING);
        m->has_stream = true;
    }
    return BASE_OK;
}

base_status_t coll_nccl_real_open(const coll_nccl_setup_t *setup, coll_nccl_real_t **real_p,
                                  char why[static COLL_NCCL_WHY], base_err_t *err)
{
    coll_nccl_real_t *r = base_xcalloc(1, sizeof(*r));
    offer_t mine = { .text = "" };
    base_err_t mine_err = { .text = "" };
    uint32_t first, n;
    coll_world_share(setup->world, &first, &n);
    char *buses = base_xcalloc((size_t)n + 1, BUS_TEXT);
    r->setup = *setup;
    if (setup->trouble[0] != '\0')
        snprintf(mine.text, sizeof(mine.text), "%.511s", setup->trouble);
    else if (coll_nccl_api_open(&r->api, &r->library, &r->version, &mine_err) != BASE_OK)
        snprintf(mine.text, sizeof(mine.text), "%.511s", mine_err.text);
    else if (look_up_gpus(setup, n, buses, &mine_err) != BASE_OK) {
        mine.has_failed = true;
        snprintf(mine.text, sizeof(mine.text), "%.511s", mine_err.text);
    }
    offer_t verdict = decide(setup, &mine, buses, n);
    free(buses);
    *real_p = NULL;
    snprintf(why, COLL_NCCL_WHY, "%s", verdict.text);
    base_status_t status = BASE_OK;
    if (verdict.has_failed)
        status = base_err_set(err, BASE_ERR_IO, "%s", verdict.text);
    if (verdict.text[0] != '\0') {
        coll_nccl_real_close(r, NULL);
        return status;
    }
    status = coll_plan_init(&r->plan, setup->world_size, setup->job_of, setup->arg, &mine_err);
    if (status == BASE_OK)
        status = make_members(r, &mine_err);
    status = agree(r, status, &mine_err, err);
    if (status == BASE_OK)
        *real_p = r;
    else
        coll_nccl_real_close(r, NULL);
    return status;
}

const coll_nccl_step_t *coll_nccl_real_steps(const coll_nccl_real_t *real, uint32_t *n_p)
{
    *n_p = real->n_steps;
    return real->steps;
}

const coll_plan_t *coll_nccl_real_plan(const coll_nccl_real_t *real)
{
    return &real->plan;
}

int coll_nccl_real_version(const coll_nccl_real_t *real)
{
    return real->version;
}

/* ---- end ---- */

/* In agreement with the other members, or by force. */
static base_status_t end_comm(coll_nccl_real_t *r, void *comm, const char *name, base_err_t *err)
{
    char what[COLL_COMM_NAME + 40];
    base_status_t status = BASE_OK;
    snprintf(what, sizeof(what), "end of communicator %s", name);
    if (!r->has_failed) {
        int error = r->api.ncclCommFinalize(comm);
        if (error != 0 && error != COLL_NCCL_IN_PROGRESS)
            status = nccl_failed(r, "ncclCommFinalize", error, err);
        else
            status = wait_comm(r, comm, what, err);
    }
    if (status != BASE_OK) { /* the others may wait for this end, too */
        r->has_failed = true;
        coll_world_alarm(r->setup.world);
    }
    bool is_forced = r->has_failed;
    int error = is_forced ? r->api.ncclCommAbort(comm) : r->api.ncclCommDestroy(comm);
    if (error != 0 && !is_forced) {
        status = nccl_failed(r, "ncclCommDestroy", error, err);
        r->api.ncclCommAbort(comm);
    } else if (error != 0 && status == BASE_OK) {
        status = nccl_failed(r, "ncclCommAbort", error, err);
    }
    return status;
}

static void keep_first(base_status_t status, const base_err_t *one, base_status_t *first,
                       base_err_t *err)
{
    if (status == BASE_OK || *first != BASE_OK)
        return;
    *first = base_err_set(err, BASE_ERR_IO, "NCCL: %s", one->text);
}

static void end_member(coll_nccl_real_t *r, member_t *m, base_status_t *first, base_err_t *err)
{
    base_err_t one = { .text = "" };
    int error = r->setup.cuda->rt.cudaSetDevice(m->ordinal);
    if (error != 0)
        keep_first(cuda_failed(r, "cudaSetDevice", error, &one), &one, first, err);
    for (uint32_t c = 0; c < r->plan.n_comms && m->handles != NULL; c++)
        if (m->handles[c] != NULL)
            keep_first(end_comm(r, m->handles[c], r->plan.comms[c].name, &one), &one, first, err);
    keep_first(free_buffers(r, m, &one), &one, first, err);
    error = m->has_stream ? r->setup.cuda->rt.cudaStreamDestroy(m->stream) : 0;
    if (error != 0)
        keep_first(cuda_failed(r, "cudaStreamDestroy", error, &one), &one, first, err);
    free(m->handles);
    free(m->models);
}

base_status_t coll_nccl_real_close(coll_nccl_real_t *real, base_err_t *err)
{
    base_status_t status = BASE_OK;
    if (real == NULL)
        return BASE_OK;
    for (uint32_t i = 0; i < real->n_members; i++)
        end_member(real, &real->members[i], &status, err);
    free(real->members);
    free(real->steps);
    coll_plan_fini(&real->plan);
    base_dynlib_close(real->library);
    free(real);
    return status;
}
