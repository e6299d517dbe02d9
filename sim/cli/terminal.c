/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cli/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { DEFAULT_COLUMNS = 80 };

/* Open MPI's mpirun gives its processes a terminal of their own, also when their output ends in a
 * file. */
static bool is_terminal(void)
{
    return isatty(STDOUT_FILENO) == 1 && getenv("OMPI_COMM_WORLD_SIZE") == NULL;
}

bool sim_terminal_has_colour(void)
{
    const char *no_colour = getenv("NO_COLOR"), *kind = getenv("TERM");
    bool is_dumb = kind == NULL || strcmp(kind, "dumb") == 0;
    bool is_refused = no_colour != NULL && *no_colour != '\0';
    return is_terminal() && !is_dumb && !is_refused;
}

int sim_terminal_columns(void)
{
    struct winsize size;
    if (!is_terminal())
        return 0;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return DEFAULT_COLUMNS;
    return size.ws_col;
}
