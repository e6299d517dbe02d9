/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/sweep_file.h"

#include "sim/base/infile.h"
#include "sim/base/log.h"
#include "sim/base/xmem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_ROWS_BYTES = 1 << 30 };

/* ---- reading ---- */

void sim_sweep_rows_add(sim_sweep_rows_t *rows, sim_sweep_row_t *row)
{
    if (rows->n == rows->cap) {
        rows->cap = 2 * rows->cap + 64;
        rows->rows = base_xrealloc(rows->rows, rows->cap, sizeof(*rows->rows));
    }
    rows->rows[rows->n++] = *row;
    *row = (sim_sweep_row_t){ 0 };
}

void sim_sweep_rows_fini(sim_sweep_rows_t *rows)
{
    for (size_t i = 0; i < rows->n; i++)
        sim_sweep_row_fini(&rows->rows[i]);
    free(rows->rows);
    free(rows->plan);
    sim_sweep_columns_fini(&rows->columns);
    *rows = (sim_sweep_rows_t){ 0 };
}

static base_status_t read_csv_line(sim_sweep_rows_t *rows, const char *line, size_t n,
                                   base_err_t *err)
{
    sim_sweep_row_t row;
    base_status_t status = sim_sweep_row_parse_csv(line, n, &row, err);
    if (status != BASE_OK)
        return status;
    if (rows->columns.n == 0) {
        for (size_t i = 0; i < row.n; i++)
            sim_sweep_columns_add(&rows->columns, sim_sweep_row_text(&row, (int)i));
        if (sim_sweep_column(&rows->columns, "layout") == SIM_COLUMN_NONE)
            status = base_err_set(err, BASE_ERR_PARSE, "not the header of a sweep");
        sim_sweep_row_fini(&row);
    } else if (row.n != rows->columns.n) {
        status = base_err_set(err, BASE_ERR_PARSE, "%zu fields, not %zu", row.n, rows->columns.n);
        sim_sweep_row_fini(&row);
    } else {
        sim_sweep_rows_add(rows, &row);
    }
    return status;
}

static base_status_t read_json_line(sim_sweep_rows_t *rows, const char *line, size_t n,
                                    base_err_t *err)
{
    if (memmem(line, n, SIM_SWEEP_PLAN_SCHEMA, strlen(SIM_SWEEP_PLAN_SCHEMA)) != NULL) {
        free(rows->plan);
        rows->plan = base_xasprintf("%.*s", (int)n, line);
        return BASE_OK;
    }
    sim_sweep_row_t row;
    base_status_t status = sim_sweep_row_parse_json(line, n, &rows->columns, &row, err);
    if (status == BASE_OK)
        sim_sweep_rows_add(rows, &row);
    return status;
}

static base_status_t read_lines(const char *path, const char *text, size_t length,
                                sim_sweep_rows_t *rows, base_err_t *err)
{
    base_status_t status = BASE_OK;
    const char *at = text, *end = text + length;
    rows->format = length > 0 && text[0] == '{' ? SIM_ROWS_JSON : SIM_ROWS_CSV;
    for (unsigned long number = 1; at < end && status == BASE_OK; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL)
            break;
        base_err_t why;
        size_t n = (size_t)(newline - at);
        status = rows->format == SIM_ROWS_CSV ? read_csv_line(rows, at, n, &why)
                                              : read_json_line(rows, at, n, &why);
        if (status != BASE_OK)
            base_err_set(err, status, "%s:%lu: %s", path, number, why.text);
        at = newline + 1;
    }
    rows->n_whole_bytes = (size_t)(at - text);
    rows->has_torn_row = at < end;
    return status;
}

base_status_t sim_sweep_rows_read(const char *path, sim_sweep_rows_t *rows_p, base_err_t *err)
{
    char *text;
    size_t length;
    base_status_t status = base_infile_read(path, MAX_ROWS_BYTES, &text, &length, err);
    if (status != BASE_OK)
        return status;
    status = sim_sweep_rows_parse(path, text, length, rows_p, err);
    free(text);
    return status;
}

base_status_t sim_sweep_rows_parse(const char *name, const char *text, size_t length,
                                   sim_sweep_rows_t *rows_p, base_err_t *err)
{
    sim_sweep_rows_t rows = { 0 };
    base_status_t status = read_lines(name, text, length, &rows, err);
    if (status == BASE_OK)
        *rows_p = rows;
    else
        sim_sweep_rows_fini(&rows);
    return status;
}

/* ---- appending ---- */

struct sim_sweep_file {
    char *path;
    int fd;
    bool is_stdout;
    off_t length; /* whole rows */
};

static base_status_t cannot(const sim_sweep_file_t *file, const char *what, int error,
                            base_err_t *err)
{
    return base_err_set(err, BASE_ERR_IO, "%s: cannot be %s: %s", file->path, what,
                        strerror(error));
}

/* Some file systems know no locks: then the user has to see to it that one process writes. */
static base_status_t lock(const sim_sweep_file_t *file, base_err_t *err)
{
    if (flock(file->fd, LOCK_EX | LOCK_NB) == 0)
        return BASE_OK;
    if (errno == EWOULDBLOCK)
        return base_err_set(err, BASE_ERR_INVAL, "%s: another sweep is writing to it", file->path);
    base_log(BASE_LOG_WARN, "%s: cannot be locked (%s); let no other sweep write to it", file->path,
             strerror(errno));
    return BASE_OK;
}

static base_status_t prepare(sim_sweep_file_t *file, const char *head, bool goes_on,
                             size_t n_whole_bytes, base_err_t *err)
{
    base_status_t status = lock(file, err);
    if (status != BASE_OK)
        return status;
    struct stat info;
    if (fstat(file->fd, &info) != 0)
        return cannot(file, "looked at", errno, err);
    bool is_regular = S_ISREG(info.st_mode);
    if (is_regular && !goes_on && info.st_size > 0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "%s: is there already; go on with it by --resume, or remove it",
                            file->path);
    file->length = (off_t)n_whole_bytes;
    if (is_regular && ftruncate(file->fd, file->length) != 0)
        return cannot(file, "cut", errno, err);
    return n_whole_bytes == 0 ? sim_sweep_file_append(file, head, err) : BASE_OK;
}

base_status_t sim_sweep_file_open(const char *path, const char *head, bool goes_on,
                                  size_t n_whole_bytes, sim_sweep_file_t **file_p, base_err_t *err)
{
    sim_sweep_file_t *file = base_xcalloc(1, sizeof(*file));
    base_status_t status = BASE_OK;
    file->path = base_xstrdup(path);
    file->is_stdout = strcmp(path, "-") == 0;
    file->fd = STDOUT_FILENO;
    if (file->is_stdout) {
        status = sim_sweep_file_append(file, head, err);
    } else {
        file->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        status = file->fd < 0 ? cannot(file, "opened", errno, err)
                              : prepare(file, head, goes_on, n_whole_bytes, err);
    }
    if (status == BASE_OK)
        *file_p = file;
    else
        sim_sweep_file_close(file, NULL);
    return status;
}

base_status_t sim_sweep_file_append(sim_sweep_file_t *file, const char *line, base_err_t *err)
{
    size_t n = strlen(line), done = 0;
    while (done < n) {
        ssize_t wrote = write(file->fd, line + done, n - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0) {
            int error = wrote < 0 ? errno : ENOSPC;
            /* No part of a row stays; if even that fails, the next reader leaves the part out. */
            if (!file->is_stdout && done > 0 && ftruncate(file->fd, file->length) != 0)
                base_log(BASE_LOG_WARN, "%s: ends in a torn row", file->path);
            return cannot(file, "written", error, err);
        }
        done += (size_t)wrote;
    }
    file->length += (off_t)n;
    return BASE_OK;
}

base_status_t sim_sweep_file_close(sim_sweep_file_t *file, base_err_t *err)
{
    base_status_t status = BASE_OK;
    if (file == NULL)
        return BASE_OK;
    if (!file->is_stdout && file->fd >= 0) {
        /* fsync() refuses what is not a file, such as /dev/null. */
        if (fsync(file->fd) != 0 && errno != EINVAL && errno != EROFS)
            status = cannot(file, "written", errno, err);
        if (close(file->fd) != 0 && status == BASE_OK)
            status = cannot(file, "written", errno, err);
    }
    free(file->path);
    free(file);
    return status;
}
