// SPDX-License-Identifier: BSD-3-Clause
//
// Strangers at the rendezvous: nobody gets in, nothing crashes, and the job starts all the same.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <random>

#include "bootstrap/service.hpp"
#include "bootstrap/unique_id.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

using namespace tutti;

namespace {

int connect_to(const Address& address) {
  int file = socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (file >= 0 && connect(file, address.get(), address.size()) != 0) {
    close(file);
    return -1;
  }
  return file;
}

// True when the other side hangs up on us within some seconds.
bool is_hung_up_on(int file) {
  timeval limit{.tv_sec = 5, .tv_usec = 0};
  setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  char buffer[512];
  ssize_t got = 0;
  while ((got = recv(file, buffer, sizeof buffer, 0)) > 0) {
  }
  return got == 0 || errno == ECONNRESET;
}

// Stands between a rank and the rendezvous and notes what the rank says on its first connection.
class Eavesdropper {
 public:
  explicit Eavesdropper(const Address& rendezvous) : rendezvous_(rendezvous) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof any;
    REQUIRE(bind(listener_, reinterpret_cast<sockaddr*>(&any), size) == 0);
    REQUIRE(listen(listener_, 8) == 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&any), &size);
    address_ = Address(reinterpret_cast<sockaddr*>(&any), size);
    thread_ = std::thread([this] { pass_on(); });
  }
  ~Eavesdropper() {
    if (thread_.joinable()) heard();
    close(listener_);
  }
  const Address& address() const { return address_; }
  // Once the connection has ended.
  std::string heard() {
    thread_.join();
    return heard_;
  }

 private:
  void pass_on() {
    int client = accept(listener_, nullptr, nullptr), server = connect_to(rendezvous_);
    std::array<pollfd, 2> ends{{{client, POLLIN, 0}, {server, POLLIN, 0}}};
    for (bool open = true; open;) {
      poll(ends.data(), 2, -1);
      for (std::size_t from = 0; from < 2; ++from) {
        if (ends[from].revents == 0) continue;
        std::array<char, 4096> buffer;
        ssize_t got = recv(ends[from].fd, buffer.data(), buffer.size(), 0);
        open = open && got > 0;
        if (got <= 0) continue;
        if (from == 0) heard_.append(buffer.data(), static_cast<std::size_t>(got));
        (void)!send(ends[1 - from].fd, buffer.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL);
      }
    }
    close(client);
    close(server);
  }
  Address rendezvous_, address_;
  int listener_ = -1;
  std::string heard_;
  std::thread thread_;
};

// What the other side says before it hangs up.
std::string answer_to(const Address& address, const std::string& bytes) {
  int file = connect_to(address);
  REQUIRE(file >= 0);
  timeval limit{.tv_sec = 5, .tv_usec = 0};
  setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  (void)!send(file, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  std::string answer;
  char buffer[512];
  ssize_t got = 0;
  while ((got = recv(file, buffer, sizeof buffer, 0)) > 0)
    answer.append(buffer, static_cast<std::size_t>(got));
  CHECK((got == 0 || errno == ECONNRESET));
  close(file);
  return answer;
}

// As many connections as the process may have, 10,000 at most.
std::vector<int> flood(const Address& address) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<int> files;
  rlim_t other_ends = std::min<rlim_t>(limit.rlim_max / 2, 4096);  // that the library keeps
  for (rlim_t i = 0; i < std::min<rlim_t>(10'000, limit.rlim_max - other_ends - 300); ++i)
    if (int file = connect_to(address); file >= 0) files.push_back(file);
  return files;
}

bool joins(const ncclUniqueId& id) {
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      ncclComm_t comm = nullptr;
      int x = 1;
      if (ncclCommInitRank(&comm, 2, id, r) != ncclSuccess) return;
      if (ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comm, nullptr) == ncclSuccess && x == 2) ++right;
      ncclCommDestroy(comm);
    });
  for (std::thread& thread : threads) thread.join();
  return right == 2;
}

}  // namespace

TEST_CASE("scanners, rubbish, HTTP and silent connections do not disturb a rendezvous") {
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  Address address = UniqueId::unpack(id).rendezvous[0];
  std::vector<int> silent;
  for (int i = 0; i < 50; ++i) {
    int scanner = connect_to(address);
    REQUIRE(scanner >= 0);
    close(scanner);
    silent.push_back(connect_to(address));
  }
  std::mt19937 random(3);
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), std::string(100'000, 'x'),
        std::string("TUTTICTL") + std::string(200, '\xff')}) {
    int stranger = connect_to(address);
    send(stranger, text.data(), text.size(), MSG_NOSIGNAL);
    CHECK(is_hung_up_on(stranger));
    close(stranger);
  }
  for (int i = 0; i < 200; ++i) {
    std::string bytes(random() % 300, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (i % 2 == 0) bytes = "TUTTICTL" + bytes;
    int stranger = connect_to(address);
    send(stranger, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    close(stranger);
  }
  CHECK(joins(id));
  for (int file : silent) close(file);
}

TEST_CASE("what was overheard gets nobody in, and neither does another version") {
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  UniqueId own = UniqueId::unpack(id);
  Address rendezvous = own.rendezvous[0];
  Eavesdropper between(rendezvous);
  own.rendezvous = {between.address()};
  bool joined = false;
  std::thread first([&] {
    ncclComm_t comm = nullptr;
    joined = ncclCommInitRank(&comm, 2, own.pack(), 1) == ncclSuccess;
    ncclCommDestroy(comm);
  });
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRank(&comm, 2, id, 0) == ncclSuccess);
  first.join();
  CHECK(joined);
  std::string hello = between.heard();
  constexpr std::size_t kHello = 80, kProof = 32, kServerHello = 96;
  REQUIRE(hello.size() > kHello + kProof);
  SECTION("replayed as it was") {
    // The realm is still there, so that the server answers; the old proof does not go with its new nonce, and
    // what comes after it is not heard.
    CHECK(answer_to(rendezvous, hello).size() == kServerHello);
  }
  SECTION("of another protocol") {
    hello[8] ^= 1;
    std::string answer = answer_to(rendezvous, hello);
    CHECK(answer.size() == kServerHello);
    CHECK(answer.substr(answer.size() - 32) == std::string(32, '\0'));  // no proof of ours
  }
  SECTION("of another job") {
    hello[40] ^= 1;
    CHECK(answer_to(rendezvous, hello).empty());
  }
  ncclCommDestroy(comm);
}

TEST_CASE("a job starts and works while ten thousand connections stand open") {
  support::Environment network("NCCL_SHM_DISABLE", "1");  // data connections come to the same listener
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<int> before = flood(UniqueId::unpack(id).rendezvous[0]);
  CHECK(before.size() > 300);
  CHECK(joins(id));
  for (int file : before) close(file);
}

TEST_CASE("a client that is slow in saying who it is keeps nobody waiting") {
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  int slow = connect_to(UniqueId::unpack(id).rendezvous[0]);
  std::atomic<bool> done = false;
  std::thread drip([&] {
    for (std::size_t i = 0; !done; ++i) {
      (void)!send(slow, &"TUTTICTL\0\1\0\0"[i % 12], 1, MSG_NOSIGNAL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  CHECK(joins(id));
  done = true;
  drip.join();
  close(slow);
}

TEST_CASE("whoever has the wrong secret stays out") {
  support::Environment limit("TUTTI_INIT_TIMEOUT", "0.3");
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  UniqueId wrong = UniqueId::unpack(id);
  wrong.secret = Secret::random();
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRank(&comm, 2, wrong.pack(), 1) == ncclSystemError);
  CHECK(says(ncclGetLastError(nullptr), {"rank 1", "does not know the id"}));
}

TEST_CASE("shared memory is not handed to who cannot prove that it knows the secret") {
  support::LocalRanks ranks(2);
  const std::string& socket = Service::instance().descriptor_socket();
  CHECK_THROWS(fetch_descriptor(socket, Secret::random(), 0));
}

TEST_CASE("proofs depend on the secret, the role and the message") {
  Secret secret = Secret::random();
  Proof proof = prove(secret, "server", "abc");
  CHECK(is_proof(proof, secret, "server", "abc"));
  CHECK(!is_proof(proof, secret, "client", "abc"));
  CHECK(!is_proof(proof, secret, "server", "abd"));
  CHECK(!is_proof(proof, Secret::random(), "server", "abc"));
}
