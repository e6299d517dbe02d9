/* SPDX-License-Identifier: Apache-2.0
 * Figures in a sentence, as people write them when they report a failure by hand:
 * "OOM: tried 1.96 GiB, 73.15 GiB allocated, 1.07 free of 79.11". */
#ifndef SIM_STUDY_DIAGNOSE_NOTE_H
#define SIM_STUDY_DIAGNOSE_NOTE_H

#include "sim/study/diagnose.h"

/* Fill figures, unit and is_failure of `note`; the other fields stay unset. False when the line
 * has no two figures (or one that is a failed request) with a unit. GB and MB are 1000-based,
 * unless reserved memory in MB is a whole number of 2 MiB pages only when MB is MiB. */
bool diag_note_read(const char *line, diag_record_t *note);

#endif
