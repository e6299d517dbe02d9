/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cli/progress.h"

#include "sim/cli/launcher.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static double seconds_since(const struct timespec *t)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - t->tv_sec) + (double)(now.tv_nsec - t->tv_nsec) / 1e9;
}

void sim_progress_init(sim_progress_t *progress, const sim_options_t *options, const char *command,
                       const char *things)
{
    const char *when = options->progress != NULL ? options->progress : "auto";
    *progress = (sim_progress_t){ .command = command,
                                  .things = things,
                                  .is_tty = isatty(STDERR_FILENO) == 1 };
    bool is_auto = strcmp(when, "auto") == 0;
    bool wants = strcmp(when, "always") == 0 || (is_auto && progress->is_tty && !options->quiet);
    progress->is_wanted = wants && sim_launcher_rank() == 0;
    clock_gettime(CLOCK_MONOTONIC, &progress->start);
    progress->last = progress->start;
}

static void format_rate(double rate, char *buf, size_t size)
{
    snprintf(buf, size, rate < 10 ? "%.1f" : "%.0f", rate);
}

void sim_progress_show(uint64_t n_done, uint64_t n_todo, void *arg)
{
    sim_progress_t *p = arg;
    if (!p->is_wanted || n_todo == 0)
        return;
    bool is_end = n_done >= n_todo && !p->is_tty;
    if (!is_end && seconds_since(&p->last) < (p->is_tty ? 0.2 : 5.0))
        return;
    clock_gettime(CLOCK_MONOTONIC, &p->last);
    double seconds = seconds_since(&p->start);
    double rate = seconds > 0 ? (double)n_done / seconds : 0;
    char speed[32], left[48] = "";
    format_rate(rate, speed, sizeof(speed));
    if (n_done > 0 && n_done < n_todo)
        snprintf(left, sizeof(left), ", %.0f s to go", (double)(n_todo - n_done) / rate);
    /* "\033[K": what is left of a longer line goes. */
    fprintf(stderr, "%s%s: %" PRIu64 " of %" PRIu64 " %s, %" PRIu64 " %%, %s a second%s%s",
            p->is_tty ? "\r" : "", p->command, n_done, n_todo, p->things, 100 * n_done / n_todo,
            speed, left, p->is_tty ? "\033[K" : "\n");
    p->is_shown = true;
}

void sim_progress_end(sim_progress_t *progress)
{
    if (progress->is_shown && progress->is_tty)
        fputs("\r\033[K", stderr);
    progress->is_shown = false;
}
