// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <string_view>

namespace tutti {

/// What all ranks of a communicator know and nobody else.
struct Secret {
  std::array<unsigned char, 32> bytes{};
  static Secret random();
  /// From any text, and from several secrets at once.
  static Secret derive(std::string_view text);
};

/// A secret's public name: tells which secret is meant without giving it away.
struct RealmName {
  std::array<unsigned char, 16> bytes{};
  auto operator<=>(const RealmName&) const = default;
  static RealmName of(const Secret& secret);
};

using Nonce = std::array<unsigned char, 32>;
using Proof = std::array<unsigned char, 32>;
Nonce random_nonce();

/// HMAC-SHA-512-256 of role and message under the secret: shows that its maker knows the secret, to one who
/// chose part of the message afresh. `role` keeps the proofs of the two sides apart.
Proof prove(const Secret& secret, std::string_view role, std::string_view message);
/// In constant time.
bool is_proof(const Proof& proof, const Secret& secret, std::string_view role, std::string_view message);

}  // namespace tutti
