/* A long link in user space, for kernels without netem: a TUN device here, and one of the same name in a namespace.

   long_link NAMESPACE DEVICE DELAY_MS RATE_MBIT LOSS_PERCENT QUEUE_MS SECONDS

   Each way by itself, a packet is dropped if the queue before it would take longer than QUEUE_MS, takes its turn at
   RATE_MBIT (0: at once), is lost by chance, and arrives DELAY_MS later. It prints `ready`, and ends after SECONDS. */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST = 2048, SLOTS = 1 << 15, AT_ONCE = 32 };
static const int64_t SECOND = 1000000000;

struct packet {
  int64_t arrives;
  ssize_t size;
  char bytes[LARGEST];
};

/* What is on its way from one device to the other: a ring, in the order of arrival. */
struct way {
  int from, to;
  int64_t sent_by; /* when the last packet in the queue will have been sent */
  size_t first, count;
  struct packet *ring;
};

struct shape {
  int64_t delay, queue;
  double per_byte; /* nanoseconds that a byte takes */
  double loss;
};

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * SECOND + t.tv_nsec;
}

static int64_t nanoseconds(const char *milliseconds) { return (int64_t)(atof(milliseconds) * 1e6); }

static void enter(const char *namespace) {
  int there = open(namespace, O_RDONLY | O_CLOEXEC);
  if (there < 0 || setns(there, CLONE_NEWNET) < 0) err(1, "%s", namespace);
  close(there);
}

static int device(const char *name) {
  struct ifreq wanted = {.ifr_flags = IFF_TUN | IFF_NO_PI};
  snprintf(wanted.ifr_name, IFNAMSIZ, "%s", name);
  int made = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (made < 0 || ioctl(made, TUNSETIFF, &wanted) < 0) err(1, "the TUN device %s", name);
  return made;
}

/* Whether a packet of that size, which came just now, is taken; then `arrives` says when it is there. */
static int taken(struct way *way, const struct shape *shape, ssize_t size, int64_t *arrives) {
  int64_t came = now();
  if (way->sent_by < came) way->sent_by = came;
  if (way->sent_by - came > shape->queue) return 0;
  way->sent_by += (int64_t)(size * shape->per_byte);
  *arrives = way->sent_by + shape->delay;
  return drand48() >= shape->loss;
}

static void accept_packets(struct way *way, const struct shape *shape) {
  for (int n = 0; n < AT_ONCE && way->count < SLOTS; n++) {
    struct packet *packet = &way->ring[(way->first + way->count) % SLOTS];
    packet->size = read(way->from, packet->bytes, LARGEST);
    if (packet->size <= 0) return;
    if (taken(way, shape, packet->size, &packet->arrives)) way->count++;
  }
}

static void deliver_packets(struct way *way) {
  int64_t at = now();
  while (way->count && way->ring[way->first].arrives <= at) {
    struct packet *packet = &way->ring[way->first];
    /* A device that is down, or full, loses the packet as a real one does. */
    if (write(way->to, packet->bytes, packet->size) < 0 && errno == EINTR) continue;
    way->first = (way->first + 1) % SLOTS;
    way->count--;
  }
}

int main(int argc, char **argv) {
  if (argc != 8) errx(2, "NAMESPACE DEVICE DELAY_MS RATE_MBIT LOSS_PERCENT QUEUE_MS SECONDS");
  double rate_mbit = atof(argv[4]);
  struct shape shape = {
      .delay = nanoseconds(argv[3]),
      .per_byte = rate_mbit > 0 ? 8000 / rate_mbit : 0,
      .loss = atof(argv[5]) / 100,
      .queue = nanoseconds(argv[6]),
  };
  int64_t ends = now() + atoll(argv[7]) * SECOND;
  char namespace[256];
  snprintf(namespace, sizeof namespace, "/run/netns/%s", argv[1]);

  int here = device(argv[2]);
  enter(namespace);
  int there = device(argv[2]);
  struct way ways[] = {{.from = here, .to = there}, {.from = there, .to = here}};
  for (int n = 0; n < 2; n++)
    if (!(ways[n].ring = calloc(SLOTS, sizeof(struct packet)))) err(1, "no memory");
  srand48(1);
  prctl(PR_SET_TIMERSLACK, 1000UL);
  puts("ready");
  fflush(stdout);

  for (int64_t at = now(); at < ends; at = now()) {
    int64_t next = at + SECOND / 5 < ends ? at + SECOND / 5 : ends;
    struct pollfd wanted[2];
    for (int n = 0; n < 2; n++) {
      accept_packets(&ways[n], &shape);
      deliver_packets(&ways[n]);
      int is_full = ways[n].count == SLOTS;
      wanted[n] = (struct pollfd){.fd = ways[n].from, .events = is_full ? 0 : POLLIN};
      if (ways[n].count && ways[n].ring[ways[n].first].arrives < next)
        next = ways[n].ring[ways[n].first].arrives;
    }
    int64_t left = next - now();
    if (left <= 0) continue;
    struct timespec wait = {left / SECOND, left % SECOND};
    ppoll(wanted, 2, &wait, NULL);
  }
}
