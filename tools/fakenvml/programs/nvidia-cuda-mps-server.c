/* Stands for the MPS server, which serves CUDA clients: without CUDA there is nothing to serve. */
#include <signal.h>
#include <unistd.h>

int main(void) {
    while (1) pause();
}
