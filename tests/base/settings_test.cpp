// SPDX-License-Identifier: BSD-3-Clause
#include "base/settings.hpp"

#include "algorithms/select.hpp"
#include "base/error.hpp"
#include "bootstrap/interfaces.hpp"
#include "bootstrap/unique_id.hpp"
#include "communicator/signature.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "topology/machine.hpp"

using namespace tutti;
using support::Environment;

namespace {
template <class Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
}  // namespace

TEST_CASE("settings come from the environment and wrong ones are refused by name") {
  CHECK(setting_seconds("TUTTI_INIT_TIMEOUT").count() == 120000);
  {
    Environment set("TUTTI_INIT_TIMEOUT", "1.5");
    CHECK(setting_seconds("TUTTI_INIT_TIMEOUT").count() == 1500);
  }
  for (const char* wrong : {"-1", "soon", "1s", "nan"}) {
    Environment set("TUTTI_INIT_TIMEOUT", wrong);
    CHECK(says(error_of([] { setting_seconds("TUTTI_INIT_TIMEOUT"); }), {"TUTTI_INIT_TIMEOUT", wrong}));
  }
  Environment slice("TUTTI_SLICE", "64K");
  CHECK(setting_size("TUTTI_SLICE") == 65536);
  Environment windows("TUTTI_WINDOWS", "maybe");
  CHECK(says(error_of([] { setting_bool("TUTTI_WINDOWS"); }), {"TUTTI_WINDOWS=maybe"}));
}

TEST_CASE("NCCL_ALGO takes lists, exclusions and clauses per collective") {
  using C = Collective;
  auto only = AlgorithmFilter::parse("ring,tree");
  CHECK(only.allows(C::all_reduce, Algorithm::ring));
  CHECK(!only.allows(C::all_reduce, Algorithm::direct));
  auto without = AlgorithmFilter::parse("^Ring");
  CHECK(!without.allows(C::broadcast, Algorithm::ring));
  CHECK(without.allows(C::broadcast, Algorithm::tree));
  auto each = AlgorithmFilter::parse("allreduce:tree;broadcast:ring");
  CHECK(!each.allows(C::all_reduce, Algorithm::ring));
  CHECK(each.allows(C::broadcast, Algorithm::ring));
  CHECK(each.allows(C::reduce, Algorithm::direct));
  CHECK_NOTHROW(AlgorithmFilter::parse("NVLS,ring"));
  CHECK(says(error_of([] { AlgorithmFilter::parse("rign"); }), {"rign", "ring, tree, direct"}));
  CHECK(says(error_of([] { AlgorithmFilter::parse("allreduec:ring"); }), {"allreduec"}));
}

TEST_CASE("selection takes the cheapest, and falls back where nothing that is allowed exists") {
  CostParameters costs;
  AlgorithmFilter all;
  CHECK(select(Collective::all_reduce, 4, 8, all, costs) == Algorithm::flat);
  CHECK(select(Collective::all_reduce, 8, 64 << 20, all, costs) == Algorithm::direct);
  // Threads store each other's results in place, which pays sooner than two copies through slots.
  CHECK(select(Collective::all_reduce, 2, 16 << 10, all, costs) == Algorithm::flat);
  costs.shared_pointers = true;
  CHECK(select(Collective::all_reduce, 2, 16 << 10, all, costs) == Algorithm::direct);
  CHECK(select(Collective::gather, 8, 1024, AlgorithmFilter::parse("bruck"), costs) != Algorithm::bruck);
  CHECK(select(Collective::all_to_all, 8, 1024, AlgorithmFilter::parse("bruck"), costs) == Algorithm::bruck);
}

TEST_CASE("selection knows what goes over the network, and what fits in a message there") {
  HostMap hosts{0, 0, 1, 1};
  CostParameters costs{.ranks_per_host = 2};
  AlgorithmFilter all;
  NetworkModel wire(hosts, {}, 256 << 10);
  CHECK(select(Collective::scatter, 4, 64, all, costs, &wire) == Algorithm::hierarchical);
  CHECK(select(Collective::gather, 4, 64, all, costs, &wire) == Algorithm::hierarchical);
  // Blocks of two ranks no longer fit in a message, and each goes by itself.
  CHECK(select(Collective::scatter, 4, 200 << 10, all, costs, &wire) == Algorithm::direct);
  CHECK(select(Collective::all_reduce, 4, 64 << 20, all, costs, &wire) == Algorithm::hierarchical);
  CHECK(select(Collective::all_to_all, 4, 64, all, costs, &wire) == Algorithm::direct);  // one hop
  // Where ranks of all hosts share a machine's cores, the fewest messages win.
  NetworkParameters shared = NetworkParameters::virtual_links();
  shared.ranks_per_core = 2;
  NetworkModel links(hosts, shared, 256 << 10);
  CHECK(select(Collective::all_to_all, 4, 64, all, costs, &links) == Algorithm::bruck);
  CHECK(select(Collective::all_to_all, 4, 64 << 10, all, costs, &links) == Algorithm::direct);
}

TEST_CASE("a unique id survives packing, and anything else is refused") {
  UniqueId id{{Address::parse("127.0.0.1:4711"), Address::parse("[fd00::1]:4712")}, Secret::random()};
  UniqueId back = UniqueId::unpack(id.pack());
  CHECK(back.secret.bytes == id.secret.bytes);
  CHECK(to_string(back.rendezvous) == "127.0.0.1:4711, [fd00::1]:4712");
  id.rendezvous.resize(20, id.rendezvous[1]);
  CHECK(to_string(UniqueId::unpack(id.pack()).rendezvous) == to_string(back.rendezvous));  // as many as fit
  CHECK(says(error_of([] { UniqueId::unpack(ncclUniqueId{}); }), {"unique id"}));
  UniqueId agreed = UniqueId::unpack(unique_id_at("127.0.0.1:65534", "", 8).pack());
  CHECK(to_string(agreed.places()) == "127.0.0.1:65534, 127.0.0.1:65535");  // no further than there are ports
  CHECK(Address::parse("[::1]:80").to_string() == "[::1]:80");
  CHECK(!error_of([] { Address::parse("nonsense"); }).empty());
  for (const char* port : {"0", "65536", "99999", "-1", "http", ""})
    CHECK(says(error_of([&] { Address::parse(std::string("127.0.0.1:") + port); }), {"65535"}));
}

TEST_CASE("cores of ranks that are bound to one each count together") {
  Cores own = Cores::of_this_process();
  CHECK(Cores::unpack(own.pack()).count() == own.count());
  Cores first = Cores::unpack("0 1"), second = Cores::unpack("0 100");
  first.add(second);
  CHECK(first.count() == 2);
  first.add(second);
  CHECK(Cores::unpack(first.pack()).count() == 2);
  Cores limited = Cores::unpack("1 1111");
  CHECK(limited.count() == 1);
  limited.add(Cores::unpack("3 11110000"));
  CHECK(limited.count() == 3);
  CHECK(says(error_of([] { Cores::unpack("?"); }), {"cores"}));
}

TEST_CASE("an interface that does not exist is refused with those that do") {
  Environment set("NCCL_SOCKET_IFNAME", "nosuch0");
  CHECK(says(error_of([] { chosen_interfaces(); }), {"nosuch0", "lo (127.0.0.1"}));
}

TEST_CASE("a signature survives packing and reads well") {
  Signature s{17, Collective::all_reduce, DataType::bfloat16, OperatorKind::max, Algorithm::tree,
              0,  1234567890123};
  Signature back = Signature::unpack(s.pack());
  CHECK(back.in_words() == "ncclAllReduce(count 1234567890123, bfloat16, max) [operation 17, tree]");
  CHECK(back.pack() == s.pack());
}
