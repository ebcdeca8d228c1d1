// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/secret.hpp"

#include <sodium.h>

#include <string>

#include "base/error.hpp"

namespace tutti {
namespace {

static_assert(crypto_auth_hmacsha512256_KEYBYTES == 32 && crypto_auth_hmacsha512256_BYTES == 32);

void start_sodium() {
  static const int kResult = sodium_init();
  if (kResult < 0) fail(ncclSystemError, "libsodium could not be started: no source of random numbers");
}

const unsigned char* as_unsigned(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

Secret Secret::random() {
  start_sodium();
  Secret secret;
  randombytes_buf(secret.bytes.data(), secret.bytes.size());
  return secret;
}

Secret Secret::derive(std::string_view text) {
  start_sodium();
  Secret secret;
  crypto_generichash(secret.bytes.data(), secret.bytes.size(), as_unsigned(text), text.size(), nullptr, 0);
  return secret;
}

RealmName RealmName::of(const Secret& secret) {
  start_sodium();
  RealmName name;
  constexpr std::string_view kKey = "the name of a tutti realm";
  crypto_generichash(name.bytes.data(), name.bytes.size(), secret.bytes.data(), secret.bytes.size(),
                     as_unsigned(kKey), kKey.size());
  return name;
}

Nonce random_nonce() {
  start_sodium();
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Proof prove(const Secret& secret, std::string_view role, std::string_view message) {
  start_sodium();
  crypto_auth_hmacsha512256_state state;
  crypto_auth_hmacsha512256_init(&state, secret.bytes.data(), secret.bytes.size());
  crypto_auth_hmacsha512256_update(&state, as_unsigned(role), role.size());
  crypto_auth_hmacsha512256_update(&state, as_unsigned(message), message.size());
  Proof proof;
  crypto_auth_hmacsha512256_final(&state, proof.data());
  return proof;
}

bool is_proof(const Proof& proof, const Secret& secret, std::string_view role, std::string_view message) {
  Proof expected = prove(secret, role, message);
  return sodium_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

}  // namespace tutti
