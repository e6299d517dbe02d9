/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/log.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

static base_log_level_t max_level = BASE_LOG_WARN;
static int my_rank;

void base_log_init(base_log_level_t level, int rank)
{
    max_level = level;
    my_rank = rank;
}

void base_printable(char *text)
{
    for (char *c = text; *c != '\0'; c++)
        if (iscntrl((unsigned char)*c) && *c != '\n' && *c != '\t')
            *c = '?';
}

void base_log(base_log_level_t level, const char *fmt, ...)
{
    if (level > max_level || (my_rank != 0 && max_level < BASE_LOG_DEBUG))
        return;
    char line[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    base_printable(line);
    /* One call, so that lines of several ranks do not mix. */
    if (max_level >= BASE_LOG_DEBUG)
        fprintf(stderr, "mbsim[%d]: %s%s\n", my_rank, level == BASE_LOG_WARN ? "warning: " : "",
                line);
    else
        fprintf(stderr, "mbsim: %s%s\n", level == BASE_LOG_WARN ? "warning: " : "", line);
}
