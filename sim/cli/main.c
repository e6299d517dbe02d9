/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>

int main(void)
{
    puts(PACKAGE_STRING);
    return 0;
}
