/* SPDX-License-Identifier: Apache-2.0
 * What `mbsim help TOPIC` explains beside commands. */
#ifndef SIM_CLI_TOPICS_H
#define SIM_CLI_TOPICS_H

#include <stddef.h>

typedef struct {
    const char *name;  /* no command's name */
    const char *about; /* one line */
    const char *text;  /* at most 80 columns, with the end of its last line */
} sim_topic_t;

const sim_topic_t *sim_topics(size_t *n_p);

#endif
