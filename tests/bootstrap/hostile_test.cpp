// SPDX-License-Identifier: BSD-3-Clause
//
// Strangers at the rendezvous: nobody gets in, nothing crashes, and the job starts all the same.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

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
