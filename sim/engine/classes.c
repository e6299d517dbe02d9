/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/classes.h"

#include "sim/base/xmem.h"
#include "sim/engine/player.h"

#include <stdlib.h>
#include <string.h>

/* ---- tapes ---- */

static bool tapes_equal(const sim_tape_t *a, const sim_tape_t *b)
{
    return a->n_ops == b->n_ops &&
           (a->n_ops == 0 || memcmp(a->ops, b->ops, a->n_ops * sizeof(*a->ops)) == 0);
}

static bool tensors_equal(const sim_tensor_t *a, const sim_tensor_t *b)
{
    return strcmp(a->name, b->name) == 0 && a->bytes == b->bytes && a->layer == b->layer &&
           a->category == b->category && a->module == b->module;
}

static bool params_equal(const sim_params_t *a, const sim_params_t *b)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++) {
        const sim_param_t *x = &a->params[i], *y = &b->params[i];
        if (strcmp(x->name, y->name) != 0 || x->n_elements != y->n_elements ||
            x->layer != y->layer || x->module != y->module || x->buffer != y->buffer ||
            x->is_vector != y->is_vector || x->rows != y->rows || x->split != y->split ||
            x->is_shared_embedding != y->is_shared_embedding)
            return false;
    }
    return true;
}

static bool tape_tensors_equal(const sim_tape_tensors_t *a, const sim_tape_tensors_t *b)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++) {
        if (!tensors_equal(&a->tensors[i], &b->tensors[i]))
            return false;
    }
    return true;
}

static bool chunks_equal(const sim_player_chunk_t *a, const sim_player_chunk_t *b)
{
    const sim_chunk_t *x = &a->chunk, *y = &b->chunk;
    return x->n_slots == y->n_slots && params_equal(&x->params, &y->params) &&
           tapes_equal(&x->forward, &y->forward) && tapes_equal(&x->backward, &y->backward) &&
           tapes_equal(&x->split.backward, &y->split.backward) &&
           tapes_equal(&x->split.weights, &y->split.weights) &&
           tape_tensors_equal(&x->of, &y->of) && tape_tensors_equal(&x->split.of, &y->split.of);
}

static bool programs_equal(const sim_player_t *a, const sim_player_t *b)
{
    if (a->persistent.n != b->persistent.n)
        return false;
    /* Only the first of a tensor-parallel group reads the batches that a graph of all keeps. */
    if (a->scenario->cuda_graph_impl == SIM_GRAPHS_FULL_ITERATION && a->place.tp != b->place.tp)
        return false;
    for (uint32_t i = 0; i < a->persistent.n; i++) {
        if (!tensors_equal(&a->persistent.tensors[i], &b->persistent.tensors[i]))
            return false;
    }
    for (uint32_t c = 0; c < a->n_chunks; c++) {
        if (!chunks_equal(&a->chunks[c], &b->chunks[c]))
            return false;
    }
    return true;
}

/* ---- places ---- */

/* A place that some rank has, and what decides whether it is equal to another of its stage. */
typedef struct {
    sim_place_t place;
    uint32_t lowest_rank;
    uint32_t program; /* among the stage's */
    uint64_t *words;  /* the pieces of optimizer state, WORDS_A_PIECE each; owned */
    uint32_t n, cap;
} seat_t;

enum { WORDS_A_PIECE = 4 };

static int by_place(const void *a, const void *b)
{
    const seat_t *x = a, *y = b;
    int order = sim_place_compare(&x->place, &y->place);
    return order != 0                        ? order
           : x->lowest_rank < y->lowest_rank ? -1
                                             : x->lowest_rank > y->lowest_rank;
}

/* The distinct places, sorted; the caller frees. *seat_of_p (by rank; the caller frees) says which
 * one a rank has. */
static seat_t *list_seats(const sim_scenario_t *s, uint32_t *n_p, uint32_t **seat_of_p)
{
    uint32_t n_ranks = s->grid.world_size, n = 0;
    seat_t *seats = base_xcalloc(n_ranks, sizeof(*seats));
    uint32_t *seat_of = base_xcalloc(n_ranks, sizeof(*seat_of));
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        topo_coord_t coord = { 0 };
        topo_grid_coord(&s->grid, rank, &coord, NULL); /* rank < world_size: cannot fail */
        seats[rank] = (seat_t){ .place = sim_place_of(s, &coord), .lowest_rank = rank };
    }
    qsort(seats, n_ranks, sizeof(*seats), by_place);
    for (uint32_t i = 0; i < n_ranks; i++) {
        if (i == 0 || sim_place_compare(&seats[i].place, &seats[n - 1].place) != 0)
            seats[n++] = seats[i];
        seat_of[seats[i].lowest_rank] = n - 1;
    }
    *n_p = n;
    *seat_of_p = seat_of;
    return seats;
}

static bool add_piece(sim_player_t *p, const sim_param_t *param, uint64_t n_elements, void *arg)
{
    seat_t *seat = arg;
    if (seat->n + WORDS_A_PIECE > seat->cap) {
        seat->cap = 2 * seat->cap + 8 * WORDS_A_PIECE;
        seat->words = base_xrealloc(seat->words, seat->cap, sizeof(*seat->words));
    }
    seat->words[seat->n++] = p->now.chunk;
    seat->words[seat->n++] = param->layer;
    seat->words[seat->n++] = (uint64_t)param->buffer << 8 | param->module;
    seat->words[seat->n++] = n_elements;
    return true;
}

static int compare_content(const seat_t *a, const seat_t *b)
{
    if (a->program != b->program)
        return a->program < b->program ? -1 : 1;
    if (a->place.dp != b->place.dp)
        return a->place.dp < b->place.dp ? -1 : 1;
    if (a->place.outside_bytes != b->place.outside_bytes)
        return a->place.outside_bytes < b->place.outside_bytes ? -1 : 1;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return a->n > 0 ? memcmp(a->words, b->words, a->n * sizeof(*a->words)) : 0;
}

static int by_content(const void *a, const void *b)
{
    const seat_t *x = *(const seat_t *const *)a, *y = *(const seat_t *const *)b;
    int order = compare_content(x, y);
    return order != 0 ? order : x->lowest_rank < y->lowest_rank ? -1 : 1;
}

/* Programs of one stage; most stages have one. */
typedef struct {
    sim_player_t *players; /* n of them, owned */
    uint32_t n;
} programs_t;

/* Build the program of `place`; *index_p is its number, an earlier one when that is equal. */
static base_status_t add_program(programs_t *programs, const sim_scenario_t *s,
                                 const sim_place_t *place, uint32_t *index_p, base_err_t *err)
{
    sim_player_t p;
    base_status_t status = sim_player_init_program(&p, s, place, err);
    if (status != BASE_OK) {
        sim_player_fini(&p);
        return status;
    }
    uint32_t i = 0;
    while (i < programs->n && !programs_equal(&programs->players[i], &p))
        i++;
    if (i < programs->n) {
        sim_player_fini(&p);
    } else {
        programs->players = base_xrealloc(programs->players, programs->n + 1, sizeof(p));
        programs->players[programs->n++] = p;
    }
    *index_p = i;
    return BASE_OK;
}

/* Fill in program and pieces of the seats of one stage. */
static base_status_t describe_stage(const sim_scenario_t *s, seat_t *seats, uint32_t n,
                                    base_err_t *err)
{
    programs_t programs = { 0 };
    base_status_t status = BASE_OK;
    sim_place_t last = { 0 };
    for (uint32_t i = 0; i < n && status == BASE_OK; i++) {
        sim_place_t program = sim_place_program(&seats[i].place);
        if (i > 0 && sim_place_compare(&program, &last) == 0)
            seats[i].program = seats[i - 1].program;
        else
            status = add_program(&programs, s, &program, &seats[i].program, err);
        last = program;
        if (status == BASE_OK) {
            sim_player_t *p = &programs.players[seats[i].program];
            p->place = seats[i].place;
            sim_player_foreach_owned(p, add_piece, &seats[i]);
        }
    }
    for (uint32_t i = 0; i < programs.n; i++)
        sim_player_fini(&programs.players[i]);
    free(programs.players);
    return status;
}

/* lowest[i] = lowest rank among the seats that are equal to seat i. */
static void merge_stage(const seat_t *seats, uint32_t n, uint32_t *lowest)
{
    const seat_t **order = base_xcalloc(n, sizeof(const seat_t *));
    for (uint32_t i = 0; i < n; i++)
        order[i] = &seats[i];
    qsort(order, n, sizeof(const seat_t *), by_content);
    for (uint32_t i = 0, first = 0; i < n; i++) {
        if (compare_content(order[i], order[first]) != 0)
            first = i;
        lowest[order[i] - seats] = order[first]->lowest_rank;
    }
    free(order);
}

static base_status_t merge_all(const sim_scenario_t *s, seat_t *seats, uint32_t n, uint32_t *lowest,
                               base_err_t *err)
{
    base_status_t status = BASE_OK;
    for (uint32_t first = 0, end; first < n && status == BASE_OK; first = end) {
        for (end = first + 1; end < n && seats[end].place.pp == seats[first].place.pp;)
            end++;
        status = describe_stage(s, seats + first, end - first, err);
        if (status == BASE_OK)
            merge_stage(seats + first, end - first, lowest + first);
    }
    return status;
}

/* Classes are numbered by their lowest rank. */
static void number_classes(sim_classes_t *c, const uint32_t *seat_of, const uint32_t *lowest)
{
    for (uint32_t rank = 0; rank < c->n_ranks; rank++) {
        uint32_t first = lowest[seat_of[rank]];
        if (first == rank) {
            c->first_rank[c->n_classes] = rank;
            c->of_rank[rank] = c->n_classes++;
        } else {
            c->of_rank[rank] = c->of_rank[first];
        }
    }
}

base_status_t sim_classes_init(sim_classes_t *classes_p, const sim_scenario_t *s, base_err_t *err)
{
    uint32_t n_seats, *seat_of;
    seat_t *seats = list_seats(s, &n_seats, &seat_of);
    uint32_t *lowest = base_xcalloc(n_seats, sizeof(*lowest));
    base_status_t status = merge_all(s, seats, n_seats, lowest, err);
    if (status == BASE_OK) {
        uint32_t n = s->grid.world_size;
        *classes_p = (sim_classes_t){ .n_ranks = n,
                                      .of_rank = base_xcalloc(n, sizeof(uint32_t)),
                                      .first_rank = base_xcalloc(n, sizeof(uint32_t)) };
        number_classes(classes_p, seat_of, lowest);
    }
    for (uint32_t i = 0; i < n_seats; i++)
        free(seats[i].words);
    free(seats);
    free(seat_of);
    free(lowest);
    return status;
}

void sim_classes_fini(sim_classes_t *classes)
{
    free(classes->of_rank);
    free(classes->first_rank);
    *classes = (sim_classes_t){ 0 };
}
