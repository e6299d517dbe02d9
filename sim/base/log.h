/* SPDX-License-Identifier: Apache-2.0
 * Messages for people, on standard error, each once: rank 0 speaks unless the level is debug.
 * Results never go through here. */
#ifndef SIM_BASE_LOG_H
#define SIM_BASE_LOG_H

typedef enum {
    BASE_LOG_ERROR, /* always shown */
    BASE_LOG_WARN,  /* shown unless --quiet */
    BASE_LOG_INFO,  /* shown with -v */
    BASE_LOG_DEBUG, /* shown with -vv, from every rank */
} base_log_level_t;

/* Levels up to `level` are shown; `rank` is this process in the MPI world, 0 alone. */
void base_log_init(base_log_level_t level, int rank);

/* Control characters other than newline and tab become '?', so that no input can steer a terminal;
 * messages of base_log() and base_diag_add() have been through it. */
void base_printable(char *text);

void base_log(base_log_level_t level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
