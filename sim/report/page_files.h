/* SPDX-License-Identifier: Apache-2.0
 * The files of sim/report/page, put into the program when it is built. Private to sim/report. */
#ifndef SIM_REPORT_PAGE_FILES_H
#define SIM_REPORT_PAGE_FILES_H

/* Lines with their ends; NULL after the last. */
extern const char *const sim_page_html[];
extern const char *const sim_page_css[];
extern const char *const sim_page_js[];

#endif
