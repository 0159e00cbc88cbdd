/* The program of a pod's sandbox: process 1 of the pod's namespaces. It waits for signals, reaps orphans, and ends when told
 * to. Freestanding, so that the image is this one small file: system calls only. */

#if defined(__x86_64__)
enum { SYS_sigprocmask = 14, SYS_exit = 60, SYS_wait4 = 61, SYS_sigtimedwait = 128 };
static long call(long n, long a, long b, long c, long d) {
  long r;
  register long r10 __asm__("r10") = d;
  __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return r;
}
#elif defined(__aarch64__)
enum { SYS_sigprocmask = 135, SYS_exit = 93, SYS_wait4 = 260, SYS_sigtimedwait = 137 };
static long call(long n, long a, long b, long c, long d) {
  register long x8 __asm__("x8") = n;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
  return x0;
}
#else
#error "no system calls for this processor"
#endif

enum { SIG_BLOCK = 0, SIGINT = 2, SIGTERM = 15, SIGCHLD = 17, WNOHANG = 1 };

/* The stack is as the kernel left it: nothing here needs the alignment that a caller would give. */
void _start(void) {
  unsigned long set = 1UL << (SIGINT - 1) | 1UL << (SIGTERM - 1) | 1UL << (SIGCHLD - 1);
  call(SYS_sigprocmask, SIG_BLOCK, (long)&set, 0, sizeof set);
  for (;;) {
    long signal = call(SYS_sigtimedwait, (long)&set, 0, 0, sizeof set);
    if (signal == SIGTERM || signal == SIGINT) call(SYS_exit, 0, 0, 0, 0);
    while (call(SYS_wait4, -1, 0, WNOHANG, 0) > 0) {
    }
  }
}
