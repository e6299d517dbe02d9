/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/report/communicators.h"

#include "sim/base/units.h"

#include <inttypes.h>
#include <string.h>

typedef char size_text_t[BASE_BYTES_TEXT];
typedef struct {
    char text[BASE_BYTES_TEXT + 2];
} signed_text_t;

static signed_text_t with_sign(int64_t bytes, bool always)
{
    signed_text_t s;
    size_text_t size;
    base_bytes_format(bytes < 0 ? (uint64_t)-bytes : (uint64_t)bytes, size);
    snprintf(s.text, sizeof(s.text), "%s%s",
             bytes < 0             ? "-"
             : always && bytes > 0 ? "+"
                                   : "",
             size);
    return s;
}

static void print_row(const char *name, uint64_t model_bytes, int64_t real_bytes, FILE *out)
{
    size_text_t model;
    fprintf(out, "  %-48.48s %12s %12s %12s\n", name, base_bytes_format(model_bytes, model),
            with_sign(real_bytes, false).text,
            with_sign(real_bytes - (int64_t)model_bytes, true).text);
}

static void print_step(const sim_comm_step_t *step, FILE *out)
{
    char name[COLL_COMM_NAME + 64];
    snprintf(name, sizeof(name), "%s, %" PRIu32 " rank%s, %s%s", step->name, step->n_ranks,
             step->n_ranks == 1 ? "" : "s", step->what,
             step->has_kernels ? " and NCCL's kernels" : "");
    print_row(name, step->model_bytes, step->real_bytes, out);
}

static void version_text(uint32_t version, char text[static 24])
{
    snprintf(text, 24, "%" PRIu32 ".%" PRIu32 ".%" PRIu32, version / 10000, version / 100 % 100,
             version % 100);
}

void sim_communicators_text(const sim_communicators_t *c, uint32_t rank, FILE *out)
{
    char version[24], model_version[24];
    if (c->why[0] != '\0') {
        fprintf(out, "NCCL's communicators are the model's: %s\n\n", c->why);
        return;
    }
    version_text((uint32_t)c->version, version);
    version_text(c->model_version, model_version);
    fprintf(
        out,
        "Communicators of NCCL %s on the GPUs beside the model of %s, one step after the other\n"
        "  %-48s %12s %12s %12s\n",
        version, model_version, "", "model", "device", "difference");
    uint64_t model = 0, all_model = 0;
    int64_t real = 0, all_real = 0;
    for (uint32_t i = 0; i < c->n_steps; i++) {
        const sim_comm_step_t *step = &c->steps[i];
        all_model += step->model_bytes;
        all_real += step->real_bytes;
        if (step->rank != rank)
            continue;
        model += step->model_bytes;
        real += step->real_bytes;
        print_step(step, out);
    }
    char name[40];
    snprintf(name, sizeof(name), "rank %" PRIu32 " in all", rank);
    print_row(name, model, real, out);
    print_row("all ranks together", all_model, all_real, out);
    fputc('\n', out);
}

json_t *sim_communicators_json(const sim_communicators_t *c)
{
    char version[24], model_version[24];
    bool is_measured = c->why[0] == '\0';
    version_text((uint32_t)c->version, version);
    version_text(c->model_version, model_version);
    json_t *steps = json_array();
    for (uint32_t i = 0; i < c->n_steps; i++) {
        const sim_comm_step_t *s = &c->steps[i];
        json_array_append_new(
            steps,
            json_pack("{s:i, s:s, s:i, s:s, s:b, s:i, s:s, s:I, s:I}", "rank", (int)s->rank,
                      "communicator", s->name, "n_ranks", (int)s->n_ranks, "step", s->what,
                      "with_kernels", s->has_kernels, "iteration", (int)s->at.iteration, "phase",
                      coll_phase_name(s->at.phase), "model_bytes", (json_int_t)s->model_bytes,
                      "device_bytes", (json_int_t)s->real_bytes));
    }
    json_t *all = json_pack("{s:b, s:s, s:o}", "is_measured", is_measured, "model_nccl_version",
                            model_version, "steps", steps);
    json_object_set_new(all, "why_not", is_measured ? json_null() : json_string(c->why));
    json_object_set_new(all, "nccl_version", is_measured ? json_string(version) : json_null());
    return all;
}
