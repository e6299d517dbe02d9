/* SPDX-License-Identifier: Apache-2.0
 * Plays small games on collectives/world.h; run by t_world.sh, alone and under mpirun.
 *     world_probe MODE N_GPUS
 * ring      every GPU sends to the next and hears from the one before, in two iterations, then
 * meets its group and all GPUs; process 0 checks what everybody heard missing   the same, but GPU 0
 * leaves out one message late      the same as ring, but process 0 takes longer than the deadline
 * over its first message absent    the last process never plays and never answers usage     process
 * 0 finds a mistake and has nothing to broadcast counter   see share_numbers() */
#include "config.h"

#include "collectives/world.h"
#include "topology/groups.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    N_ITERATIONS = 2,
    N_MICROBATCHES = 5,
    N_STEPS = N_ITERATIONS * N_MICROBATCHES,
    MAX_GPUS = 4096
};

typedef struct {
    uint32_t gpu, step; /* step N_STEPS: the meeting of the group; then that of all; then done */
    bool sent;          /* or arrived at the meeting */
    coll_meeting_t meeting;
    uint64_t heard_ns; /* sum of the times of all messages, then of the meetings */
} player_t;

static uint32_t n_gpus, n_half;
static uint32_t everybody[MAX_GPUS], half[2][MAX_GPUS];
static const char *mode;

static uint64_t time_of(uint32_t gpu, uint32_t step)
{
    return (uint64_t)gpu * 1000 + step;
}

static coll_message_t message_at(uint32_t from, uint32_t step)
{
    return (coll_message_t){ .from = from,
                             .to = (from + 1) % n_gpus,
                             .kind = COLL_MESSAGE_FORWARD,
                             .chunk = 7,
                             .iteration = 1 + step / N_MICROBATCHES,
                             .microbatch = step % N_MICROBATCHES,
                             .time_ns = time_of(from, step) };
}

static coll_message_t expected_by(const player_t *p)
{
    if (p->step >= N_STEPS)
        return coll_meeting_expected(&p->meeting);
    return message_at((p->gpu + n_gpus - 1) % n_gpus, p->step);
}

/* One step further; false when the player has to wait. */
static bool advance(coll_world_t *world, player_t *p)
{
    uint64_t time_ns;
    if (p->step < N_STEPS) {
        coll_message_t out = message_at(p->gpu, p->step), in = expected_by(p);
        bool left_out = strcmp(mode, "missing") == 0 && p->gpu == 0 && p->step == 3;
        if (!p->sent && strcmp(mode, "late") == 0 && p->gpu == 0 && p->step == 3)
            usleep(1500000);
        if (!p->sent && !left_out)
            coll_world_send(world, &out);
        p->sent = true;
        if (!coll_world_take(world, &in))
            return false;
        time_ns = in.time_ns;
    } else {
        bool all = p->step > N_STEPS;
        const uint32_t *gpus = all ? everybody : half[p->gpu % 2];
        if (!p->sent)
            coll_meeting_begin(&p->meeting, world, gpus,
                               all          ? n_gpus
                               : p->gpu % 2 ? n_gpus / 2
                                            : n_half,
                               all ? p->gpu : p->gpu / 2, all ? TOPO_GROUP_TP_DP_CP : TOPO_GROUP_DP,
                               N_ITERATIONS, p->step, time_of(p->gpu, p->step));
        p->sent = true;
        if (!coll_meeting_test(&p->meeting, world, &time_ns))
            return false;
    }
    p->heard_ns += time_ns;
    p->step++;
    p->sent = false;
    return true;
}

static uint64_t expected_sum(uint32_t gpu)
{
    uint64_t sum = 0;
    for (uint32_t step = 0; step < N_STEPS; step++)
        sum += time_of((gpu + n_gpus - 1) % n_gpus, step);
    uint32_t last_of_half = gpu % 2 ? half[1][n_gpus / 2 - 1] : half[0][n_half - 1];
    return sum + time_of(last_of_half, N_STEPS) + time_of(n_gpus - 1, N_STEPS + 1);
}

static base_status_t play(coll_world_t *world, player_t *players, uint32_t n, base_err_t *err)
{
    coll_message_t *expected = calloc(n, sizeof(*expected));
    base_status_t status = BASE_OK;
    while (status == BASE_OK) {
        size_t n_expected = 0;
        for (uint32_t i = 0; i < n; i++) {
            while (players[i].step < N_STEPS + 2 && advance(world, &players[i]))
                ;
            if (players[i].step < N_STEPS + 2)
                expected[n_expected++] = expected_by(&players[i]);
        }
        if (n_expected == 0)
            break;
        status = coll_world_wait(world, expected, n_expected, err);
    }
    free(expected);
    return status;
}

/* Process 0: every process must have sent one line per GPU of its own, with the right sum. */
static int check_blobs(const coll_world_t *world, const coll_blob_t *blobs)
{
    uint32_t gpu = 0;
    for (uint32_t i = 0; i < coll_world_n_processes(world); i++) {
        char *line = blobs[i].data;
        for (size_t at = 0; at < blobs[i].n; gpu++) {
            char right[64];
            int n = snprintf(right, sizeof(right), "%" PRIu32 " %" PRIu32 " %" PRIu64 "\n", i, gpu,
                             expected_sum(gpu));
            if (coll_world_owner(world, gpu) != i || strncmp(line + at, right, (size_t)n) != 0) {
                printf("process %" PRIu32 " says: %s", i, line + at);
                return 1;
            }
            at += (size_t)n;
        }
    }
    if (gpu != n_gpus)
        return 1;
    printf("%s: %" PRIu32 " GPUs heard everything\n", mode, gpu);
    return 0;
}

static int run(coll_world_t *world)
{
    base_err_t err;
    coll_blob_t *blobs = NULL;
    uint32_t first, n;
    coll_world_share(world, &first, &n);
    player_t *players = calloc(n, sizeof(*players));
    for (uint32_t i = 0; i < n; i++)
        players[i].gpu = first + i;
    base_status_t status = play(world, players, n, &err);
    if (status == BASE_OK) {
        char *text = malloc((size_t)n * 64);
        size_t length = 0;
        for (uint32_t i = 0; i < n; i++)
            length +=
                (size_t)sprintf(text + length, "%" PRIu32 " %" PRIu32 " %" PRIu64 "\n",
                                coll_world_process(world), players[i].gpu, players[i].heard_ns);
        status = coll_world_gather(world, text, length, &blobs, &err);
        free(text);
    }
    free(players);
    int code = base_err_exit_code(status);
    if (coll_world_process(world) == 0) {
        if (status == BASE_OK)
            code = check_blobs(world, blobs);
        else
            fprintf(stderr, "world_probe: %s\n", err.text);
    }
    coll_blobs_free(blobs, coll_world_n_processes(world));
    return code;
}

/* Everybody takes numbers below n_gpus from the shared counter and posts them; process 0 must get
 * each once. */
static int share_numbers(coll_world_t *world)
{
    coll_blob_t blob, *blobs = NULL;
    base_err_t err;
    uint32_t n_seen[MAX_GPUS] = { 0 }, n_once = 0;
    coll_world_counter_open(world);
    for (uint64_t number; (number = coll_world_counter_next(world)) < n_gpus;) {
        usleep(100);
        coll_world_post(world, &number, sizeof(number));
    }
    base_status_t status = coll_world_gather(world, "", 0, &blobs, &err);
    coll_blobs_free(blobs, coll_world_n_processes(world));
    if (coll_world_process(world) != 0 || status != BASE_OK)
        return base_err_exit_code(status);
    while (coll_world_fetch(world, &blob)) {
        uint64_t number;
        memcpy(&number, blob.data, sizeof(number));
        free(blob.data);
        n_seen[number]++;
    }
    for (uint32_t i = 0; i < n_gpus; i++)
        n_once += n_seen[i] == 1;
    printf("counter: %" PRIu32 " of %" PRIu32 " numbers came once\n", n_once, n_gpus);
    return n_once == n_gpus ? 0 : 1;
}

int main(int argc, char **argv)
{
    coll_world_t *world;
    base_err_t err;
    base_status_t status = coll_world_create(&world, "world_probe", &err);
    bool root = coll_world_process(world) == 0;
    mode = argc > 1 ? argv[1] : "ring";
    n_gpus = argc > 2 ? (uint32_t)atoi(argv[2]) : 4;
    assert(n_gpus > 0 && n_gpus <= MAX_GPUS);
    for (uint32_t i = 0; i < n_gpus; i++)
        everybody[i] = half[i % 2][i / 2] = i;
    n_half = (n_gpus + 1) / 2;

    char *text = NULL;
    size_t length = 0;
    if (root && status == BASE_OK && strcmp(mode, "usage") != 0) {
        text = strdup(mode);
        length = strlen(mode);
    } else if (root) {
        fprintf(stderr, "world_probe: %s\n", status == BASE_OK ? "a mistake" : err.text);
    }
    coll_world_broadcast(world, &text, &length);
    if (text == NULL)
        return coll_world_finish(world, 2);
    if (strcmp(text, mode) != 0 || length != strlen(mode))
        coll_world_abort(world, 9);
    free(text);
    if (strcmp(mode, "counter") == 0)
        return coll_world_finish(world, share_numbers(world));
    status = coll_world_set_gpus(world, n_gpus, &err);
    if (status != BASE_OK) {
        if (root)
            fprintf(stderr, "world_probe: %s\n", err.text);
        return coll_world_finish(world, base_err_exit_code(status));
    }
    if (strcmp(mode, "absent") == 0 && !root &&
        coll_world_process(world) == coll_world_n_processes(world) - 1)
        pause();
    return coll_world_finish(world, run(world));
}
