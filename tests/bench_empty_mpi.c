/* SPDX-License-Identifier: Apache-2.0
 * An MPI program that does nothing: what starting and ending costs. */
#include <mpi.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Finalize();
    return 0;
}
