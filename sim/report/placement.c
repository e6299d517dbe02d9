/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/report/placement.h"

#include <inttypes.h>
#include <string.h>

/* The first process of each host, in order: where its block begins. */
static bool begins_host(const coll_placement_t *p, uint32_t process)
{
    for (uint32_t i = 0; i < process; i++)
        if (strcmp(p->processes[i].host, p->processes[process].host) == 0)
            return false;
    return true;
}

static bool is_with(const coll_placement_t *p, uint32_t process, uint32_t other)
{
    return strcmp(p->processes[process].host, p->processes[other].host) == 0;
}

/* ---- text ---- */

static void print_who(const coll_placed_t *process, uint32_t index, FILE *out)
{
    char who[40];
    if (process->n_gpus == 0)
        snprintf(who, sizeof(who), "process %" PRIu32, index);
    else if (process->n_gpus == 1)
        snprintf(who, sizeof(who), "rank %" PRIu32, process->first_gpu);
    else
        snprintf(who, sizeof(who), "ranks %" PRIu32 "-%" PRIu32, process->first_gpu,
                 process->first_gpu + process->n_gpus - 1);
    fprintf(out, "    %-14s", who);
}

static void print_part(const char *name, uint32_t number, FILE *out)
{
    if (number == TOPO_SEVERAL)
        fprintf(out, ", any %s", name);
    else
        fprintf(out, ", %s %" PRIu32, name, number);
}

static void print_process(const coll_placed_t *process, uint32_t index, FILE *out)
{
    const topo_seat_t *seat = &process->seat;
    print_who(process, index, out);
    if (seat->cpus[0] == '\0') {
        fprintf(out, " %s\n", process->trouble);
        return;
    }
    if (seat->bus[0] != '\0')
        fprintf(out, " GPU %" PRIu32 " (%s)", seat->gpu, seat->bus);
    else
        fprintf(out, " place %" PRIu32, seat->gpu);
    print_part("package", seat->package, out);
    print_part("NUMA node", seat->numa, out);
    fprintf(out, ", hardware threads %s", seat->cpus);
    if (!seat->is_bound)
        fputs("; not bound", out);
    else if (!seat->is_memory_bound)
        fprintf(out, "; memory not bound: %s", seat->why_not_memory);
    fputc('\n', out);
}

void sim_placement_text(const coll_placement_t *p, FILE *out)
{
    fprintf(out, "Where it ran: %" PRIu32 " process%s on %" PRIu32 " host%s%s\n", p->n,
            p->n == 1 ? "" : "es", p->n_hosts, p->n_hosts == 1 ? "" : "s",
            p->is_bound ? ", bound" : "");
    for (uint32_t first = 0; first < p->n; first++) {
        if (!begins_host(p, first))
            continue;
        fprintf(out, "  %s\n", p->processes[first].host);
        for (uint32_t i = first; i < p->n; i++)
            if (is_with(p, first, i))
                print_process(&p->processes[i], i, out);
    }
}

/* ---- JSON ---- */

static json_t *part_json(uint32_t number)
{
    return number == TOPO_SEVERAL ? json_null() : json_integer(number);
}

static json_t *process_json(const coll_placed_t *process, uint32_t index)
{
    const topo_seat_t *seat = &process->seat;
    json_t *object = json_pack("{s:i, s:i, s:i, s:b, s:b}", "process", (int)index, "first_rank",
                               (int)process->first_gpu, "n_ranks", (int)process->n_gpus, "bound",
                               seat->is_bound, "memory_bound", seat->is_memory_bound);
    json_object_set_new(object, "trouble",
                        process->trouble[0] != '\0' ? json_string(process->trouble) : json_null());
    if (seat->cpus[0] == '\0')
        return object;
    json_object_set_new(object, "gpu", json_integer(seat->gpu));
    json_object_set_new(object, "bus", seat->bus[0] != '\0' ? json_string(seat->bus) : json_null());
    json_object_set_new(object, "package", part_json(seat->package));
    json_object_set_new(object, "numa", part_json(seat->numa));
    json_object_set_new(object, "hardware_threads", json_string(seat->cpus));
    return object;
}

json_t *sim_placement_json(const coll_placement_t *p)
{
    json_t *hosts = json_array();
    for (uint32_t first = 0; first < p->n; first++) {
        if (!begins_host(p, first))
            continue;
        json_t *processes = json_array();
        for (uint32_t i = first; i < p->n; i++)
            if (is_with(p, first, i))
                json_array_append_new(processes, process_json(&p->processes[i], i));
        json_array_append_new(hosts, json_pack("{s:s, s:o}", "host", p->processes[first].host,
                                               "processes", processes));
    }
    return json_pack("{s:b, s:o}", "bound", p->is_bound, "hosts", hosts);
}
