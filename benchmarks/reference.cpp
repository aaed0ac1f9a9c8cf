// Bare C++ loops of one system, the yardstick for the engine's speed.
//
// n servers, half of speed 1 and half of speed 2, FCFS, at most 10 jobs each; Poisson arrivals
// at load .9; 4 equal routers. Every job keeps its arrival time, every response time goes into a
// histogram with 64 bins an octave. Sizes have mean 1.
//
//   reference pull|jsq2 uniformised|lists n warmup jobs seed
//   reference pull|jsq2 tournament n warmup jobs seed erlang K
//   reference pull|jsq2 tournament n warmup jobs seed lognormal SCV
//   reference pull|jsq2 tournament n warmup jobs seed bounded-pareto ALPHA HIGH
//
// pull         pull-messages, fate withdraw: a server is idle if and only if one message of it
//              is out; a router without messages sends to a uniform server
// jsq2         the shorter of two distinct servers, a fair coin on ties
// uniformised  each server has a potential-completion clock that ticks whether it is busy or not
// lists        a unit-rate hazard is used up at the total service rate of the busy servers, and
//              the server that completes is drawn from its pool's list of busy servers
// tournament   sizes of another law, drawn at arrival; a winner tree over the servers' next
//              completion times
//
// The first two have exponential sizes, which need not be drawn.
//
// The warm-up is not timed. Prints one line of JSON: seconds
// (wall), cpu_seconds, the jobs (arrivals) timed and their estimates.

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <new>
#include <vector>

#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

constexpr uint32_t LIMIT = 10;
constexpr uint32_t ROUTERS = 4;
constexpr double LOAD = 0.9;

// Large arrays ask for huge pages, because NumPy's do (10 % at a million servers).
template <class T>
struct Allocator {
  using value_type = T;
  static constexpr size_t PAGE = size_t{1} << 21;

  Allocator() = default;
  template <class U>
  Allocator(const Allocator<U>&) {}

  T* allocate(size_t count) {
    const size_t bytes = (count * sizeof(T) + PAGE - 1) / PAGE * PAGE;
    void* memory = std::aligned_alloc(PAGE, bytes);
    if (!memory) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return static_cast<T*>(memory);
  }

  void deallocate(T* memory, size_t) { std::free(memory); }
  bool operator==(const Allocator&) const { return true; }
  bool operator!=(const Allocator&) const { return false; }
};

template <class T>
using Array = std::vector<T, Allocator<T>>;
using Lengths = Array<uint8_t>;

// xoshiro256++ (Blackman and Vigna), seeded by splitmix64.
class Stream {
 public:
  Stream(uint64_t seed, uint64_t number) {
    uint64_t x = seed * 0x9e3779b97f4a7c15 + number * 0xd1342543de82ef95;
    for (uint64_t& word : state_) {
      uint64_t z = (x += 0x9e3779b97f4a7c15);
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
      z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
      word = z ^ (z >> 31);
    }
  }

  uint64_t bits() {
    const uint64_t result = rotate(state_[0] + state_[3], 23) + state_[0];
    const uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = rotate(state_[3], 45);
    return result;
  }

  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double exponential() { return -std::log(1.0 - uniform()); }
  uint32_t below(uint32_t n) {
    return static_cast<uint32_t>(static_cast<unsigned __int128>(bits()) * n >> 64);
  }

 private:
  static uint64_t rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  std::array<uint64_t, 4> state_;
};

// What is kept of a job in the system.
struct Job {
  double arrival;
};

struct SizedJob {
  double arrival, size;
};

// The queues: a ring of jobs per server.
template <class Kept>
struct Queues {
  explicit Queues(uint32_t n) : length(n), head(n), jobs(size_t{n} * LIMIT) {}

  void push(uint32_t server, const Kept& job) {
    uint32_t place = head[server] + length[server]++;
    if (place >= LIMIT) place -= LIMIT;
    jobs[size_t{server} * LIMIT + place] = job;
  }

  const Kept& front(uint32_t server) const { return jobs[size_t{server} * LIMIT + head[server]]; }

  Kept pop(uint32_t server) {
    const uint32_t place = head[server];
    head[server] = place + 1 == LIMIT ? 0 : place + 1;
    --length[server];
    return jobs[size_t{server} * LIMIT + place];
  }

  Lengths length;
  Array<uint8_t> head;
  Array<Kept> jobs;
};

// Bins linear within each octave, 64 of them, from 2^-32 to 2^32.
class Histogram {
 public:
  void add(double x) {
    uint64_t word;
    std::memcpy(&word, &x, sizeof word);
    const int64_t bin = static_cast<int64_t>(word >> 46) - LOWEST;
    ++count_[bin < 0 ? 0 : bin < BINS ? bin : BINS - 1];
  }

  double quantile(double p) const {
    uint64_t total = 0, below = 0;
    for (uint64_t c : count_) total += c;
    int64_t bin = 0;
    while (bin < BINS - 1 && (below += count_[bin]) <= p * total) ++bin;
    return std::ldexp(1.0 + (bin % 64 + 0.5) / 64, static_cast<int>(bin / 64) - 32);
  }

 private:
  static constexpr int64_t BINS = 64 * 64;
  static constexpr int64_t LOWEST = (1023 - 32) * 64;
  std::array<uint64_t, BINS> count_{};
};

// Lists of servers with removal from the middle: the last one takes the free place.
class ServerLists {
 public:
  ServerLists(uint32_t n, uint32_t lists) : members_(lists), place_(n) {
    for (Array<uint32_t>& members : members_) members.reserve(n);
  }

  void add(uint32_t list, uint32_t server) {
    place_[server] = {list, size(list)};
    members_[list].push_back(server);
  }

  void remove(uint32_t server) {
    const Place place = place_[server];
    Array<uint32_t>& members = members_[place.list];
    const uint32_t last = members.back();
    members[place.position] = last;
    place_[last] = place;
    members.pop_back();
  }

  uint32_t size(uint32_t list) const { return static_cast<uint32_t>(members_[list].size()); }
  uint32_t at(uint32_t list, uint32_t position) const { return members_[list][position]; }

 private:
  struct Place {
    uint32_t list, position;
  };
  std::vector<Array<uint32_t>> members_;
  Array<Place> place_;
};

// Policies: where to send, and what to do when a server becomes busy or idle.

class Pull {
 public:
  Pull(uint32_t n, uint64_t seed) : n_(n), network_(seed, 2), messages_(n, ROUTERS) {
    for (uint32_t server = 0; server < n; ++server) became_idle(server);
  }

  uint32_t choose(const Lengths&, uint32_t router) {
    const uint32_t held = messages_.size(router);
    return held ? messages_.at(router, network_.below(held)) : network_.below(n_);
  }

  void became_busy(uint32_t server) { messages_.remove(server); }
  void became_idle(uint32_t server) { messages_.add(network_.below(ROUTERS), server); }

 private:
  uint32_t n_;
  Stream network_;
  ServerLists messages_;
};

class Jsq2 {
 public:
  Jsq2(uint32_t n, uint64_t seed) : n_(n), network_(seed, 2) {}

  uint32_t choose(const Lengths& lengths, uint32_t) {
    const uint32_t first = network_.below(n_);
    uint32_t second = network_.below(n_ - 1);
    second += second >= first;  // in random order, so that the first may win the ties
    return lengths[first] <= lengths[second] ? first : second;
  }

  void became_busy(uint32_t) {}
  void became_idle(uint32_t) {}

 private:
  uint32_t n_;
  Stream network_;
};

// Laws of sizes, of mean 1.

struct Erlang {
  explicit Erlang(char** words) : phases(std::atoi(words[0])) {}

  double draw(Stream& stream) const {
    double product = 1.0;
    for (int k = 0; k < phases; ++k) product *= 1.0 - stream.uniform();
    return -std::log(product) / phases;
  }

  int phases;
};

struct Lognormal {
  explicit Lognormal(char** words) : sigma(std::sqrt(std::log1p(std::atof(words[0])))) {}

  // Box and Muller
  double draw(Stream& stream) const {
    const double radius = std::sqrt(2.0 * stream.exponential());
    const double normal = radius * std::cos(2.0 * M_PI * stream.uniform());
    return std::exp(sigma * (normal - 0.5 * sigma));
  }

  double sigma;
};

// Density proportional to x^(-alpha - 1) from 1 to high, then scaled.
struct BoundedPareto {
  explicit BoundedPareto(char** words) : alpha(std::atof(words[0])) {
    const double high = std::atof(words[1]), beyond = std::pow(high, -alpha);
    share = 1.0 - beyond;
    low = share * (alpha - 1.0) / (alpha * (1.0 - std::pow(high, 1.0 - alpha)));
  }

  double draw(Stream& stream) const {
    return low * std::pow(1.0 - stream.uniform() * share, -1.0 / alpha);
  }

  double alpha, share, low;
};

// Clocks: when the next service opportunity comes, and at which server.

class Uniformised {
 public:
  using Kept = Job;
  Uniformised(uint32_t n, uint64_t seed, char**) : half_(n / 2), service_(seed, 1) { draw(0.0); }

  Job job(double now) { return {now}; }

  bool before(double, double time) const { return next_ < time; }
  double time(double) const { return next_; }
  void wait(double) {}

  // Servers of speed 2 tick twice as often.
  uint32_t server() {
    draw(next_);
    const uint32_t u = service_.below(3 * half_);
    return u < half_ ? u : half_ + (u - half_) / 2;
  }

  void became_busy(uint32_t, double, const Job&) {}
  void goes_on(uint32_t, double, const Job&) {}
  void became_idle(uint32_t) {}

 private:
  void draw(double now) { next_ = now + service_.exponential() / (3.0 * half_); }

  uint32_t half_;
  Stream service_;
  double next_;
};

class Lists {
 public:
  using Kept = Job;
  Lists(uint32_t n, uint64_t seed, char**) : half_(n / 2), service_(seed, 1), busy_(n, 2) {
    hazard_ = service_.exponential();
  }

  Job job(double now) { return {now}; }

  bool before(double now, double time) const { return hazard_ < rate_ * (time - now); }
  double time(double now) const { return now + hazard_ / rate_; }
  void wait(double elapsed) { hazard_ -= rate_ * elapsed; }

  uint32_t server() {
    hazard_ = service_.exponential();
    const uint32_t slow = busy_.size(0), u = service_.below(static_cast<uint32_t>(rate_));
    return u < slow ? busy_.at(0, u) : busy_.at(1, (u - slow) / 2);
  }

  void became_busy(uint32_t server, double, const Job&) {
    busy_.add(server >= half_, server);
    rate_ += server >= half_ ? 2.0 : 1.0;
  }

  void goes_on(uint32_t, double, const Job&) {}

  void became_idle(uint32_t server) {
    busy_.remove(server);
    rate_ -= server >= half_ ? 2.0 : 1.0;
  }

 private:
  uint32_t half_;
  Stream service_;
  ServerLists busy_;
  double hazard_;
  double rate_ = 0.0;
};

template <class Law>
class Tournament {
 public:
  using Kept = SizedJob;
  Tournament(uint32_t n, uint64_t seed, char** words)
      : n_(n), law_(words), service_(seed, 1), nodes_(2 * size_t{n}) {
    for (uint32_t k = 0; k < 2 * n; ++k) nodes_[k] = {NEVER, k < n ? 0 : k - n};
  }

  SizedJob job(double now) { return {now, law_.draw(service_)}; }
  bool before(double, double time) const { return nodes_[1].time < time; }
  double time(double) const { return nodes_[1].time; }
  void wait(double) {}
  uint32_t server() const { return nodes_[1].server; }

  void became_busy(uint32_t server, double now, const SizedJob& job) { goes_on(server, now, job); }
  void goes_on(uint32_t server, double now, const SizedJob& job) {
    set(server, now + (server >= n_ / 2 ? 0.5 * job.size : job.size));
  }
  void became_idle(uint32_t server) { set(server, NEVER); }

 private:
  struct Node {
    double time;
    uint32_t server;
  };
  static constexpr double NEVER = std::numeric_limits<double>::infinity();

  void set(uint32_t server, double time) {
    uint32_t k = n_ + server;
    nodes_[k].time = time;
    while (k > 1) {
      const Node& one = nodes_[k];
      const Node& other = nodes_[k ^ 1];
      const Node winner = other.time < one.time ? other : one;
      Node& parent = nodes_[k >>= 1];
      if (parent.time == winner.time && parent.server == winner.server) return;
      parent = winner;
    }
  }

  uint32_t n_;
  Law law_;
  Stream service_;
  Array<Node> nodes_;  // the winners of two each, the servers from n on
};

struct Estimates {
  uint64_t arrivals = 0, blocked = 0, waited = 0, departed = 0;
  double time = 0.0, area = 0.0, response = 0.0;
  Histogram histogram;
};

template <class Policy, class Clock>
class Simulation {
 public:
  Simulation(uint32_t n, uint64_t seed, char** words)
      : arrival_rate_(LOAD * 1.5 * n), arrivals_(seed, 0), queues_(n), policy_(n, seed),
        clock_(n, seed, words), next_arrival_(arrivals_.exponential() / arrival_rate_) {}

  void run(uint64_t jobs) {
    const uint64_t end = estimates.arrivals + jobs;
    while (estimates.arrivals < end) {
      if (clock_.before(now_, next_arrival_)) {
        serve();
      } else {
        arrive();
      }
    }
  }

  void forget() {
    estimates = Estimates();
    area_since_ = started_ = now_;
  }

  double measured_time() const { return now_ - started_; }

  Estimates estimates;

 private:
  void arrive() {
    const double now = next_arrival_;
    clock_.wait(now - now_);
    now_ = now;
    next_arrival_ = now + arrivals_.exponential() / arrival_rate_;
    ++estimates.arrivals;
    const typename Clock::Kept job = clock_.job(now);
    const uint32_t server = policy_.choose(queues_.length, arrivals_.below(ROUTERS));
    const uint32_t found = queues_.length[server];
    if (found == LIMIT) {
      ++estimates.blocked;
      return;
    }
    if (found == 0) {
      policy_.became_busy(server);
      clock_.became_busy(server, now, job);
    } else {
      ++estimates.waited;
    }
    queues_.push(server, job);
    change_present(+1);
  }

  void serve() {
    const double now = now_ = clock_.time(now_);
    const uint32_t server = clock_.server();
    if (queues_.length[server] == 0) return;
    const double response = now - queues_.pop(server).arrival;
    if (queues_.length[server] == 0) {
      policy_.became_idle(server);
      clock_.became_idle(server);
    } else {
      clock_.goes_on(server, now, queues_.front(server));
    }
    change_present(-1);
    ++estimates.departed;
    estimates.response += response;
    estimates.histogram.add(response);
  }

  void change_present(int64_t change) {
    estimates.area += static_cast<double>(present_) * (now_ - area_since_);
    area_since_ = now_;
    present_ += change;
  }

  double arrival_rate_;
  Stream arrivals_;
  Queues<typename Clock::Kept> queues_;
  Policy policy_;
  Clock clock_;
  double next_arrival_;
  double now_ = 0.0, started_ = 0.0, area_since_ = 0.0;
  int64_t present_ = 0;
};

template <class Policy, class Clock>
int measure(uint32_t n, uint64_t warmup, uint64_t jobs, uint64_t seed, char** words) {
  Simulation<Policy, Clock> simulation(n, seed, words);
  simulation.run(warmup);
  simulation.forget();
  const std::clock_t cpu_start = std::clock();
  const auto start = std::chrono::steady_clock::now();
  simulation.run(jobs);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const double cpu_seconds = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  const double seconds = elapsed.count();
  const Estimates& e = simulation.estimates;
  const double accepted = static_cast<double>(e.arrivals - e.blocked);
  std::printf("{\"seconds\": %.6f, \"cpu_seconds\": %.6f, \"jobs\": %llu, ", seconds, cpu_seconds,
              static_cast<unsigned long long>(e.arrivals));
  std::printf("\"ns_per_job\": %.3f, ", 1e9 * seconds / e.arrivals);
  std::printf("\"mean_response\": %.9g, \"p_wait\": %.9g, \"p_block\": %.9g, ",
              e.response / e.departed, e.waited / accepted,
              static_cast<double>(e.blocked) / e.arrivals);
  std::printf("\"jobs_in_system\": %.9g, \"p50\": %.6g, \"p99\": %.6g}\n",
              e.area / simulation.measured_time(), e.histogram.quantile(0.5),
              e.histogram.quantile(0.99));
  return 0;
}

int refuse(const char* why) {
  std::fprintf(stderr, "reference: %s; the head of reference.cpp says what it takes\n", why);
  return 2;
}

bool same(const char* word, const char* name) { return !std::strcmp(word, name); }

// words: policy, variant, n, warmup, jobs, seed, law, its arguments
template <class Policy>
int run(int count, char** words) {
  const long long n = std::atoll(words[2]), jobs = std::atoll(words[4]);
  const uint64_t warmup = std::strtoull(words[3], nullptr, 10);
  const uint64_t seed = std::strtoull(words[5], nullptr, 10);
  if (n < 2 || n % 2 || n > 500000000 || jobs < 1) return refuse("n odd or too large, or no jobs");
  const auto with = [&](auto measured) { return measured(n, warmup, jobs, seed, words + 7); };
  const char* variant = words[1];
  if (same(variant, "uniformised")) return with(measure<Policy, Uniformised>);
  if (same(variant, "lists")) return with(measure<Policy, Lists>);
  if (!same(variant, "tournament") || count < 8) return refuse("unknown variant, or no law");
  const char* law = words[6];
  if (same(law, "erlang") && count == 8) return with(measure<Policy, Tournament<Erlang>>);
  if (same(law, "lognormal") && count == 8) return with(measure<Policy, Tournament<Lognormal>>);
  if (same(law, "bounded-pareto") && count == 9)
    return with(measure<Policy, Tournament<BoundedPareto>>);
  return refuse("unknown law, or not its arguments");
}

int main(int count, char** words) {
  if (count < 7) return refuse("too few arguments");
  if (same(words[1], "pull")) return run<Pull>(count - 1, words + 1);
  if (same(words[1], "jsq2")) return run<Jsq2>(count - 1, words + 1);
  return refuse("unknown policy");
}
