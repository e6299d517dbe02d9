#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
. "$TOP_SRCDIR/tests/lib.sh"
expect "keys" 0 num_layers "$MBSIM" keys
done_testing
