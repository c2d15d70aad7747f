// SPDX-License-Identifier: Apache-2.0
//
// A history of a store as plain data: what a model test runs, prints, reads back and shrinks.
//
// Every operation names branches by slots and everything else by small numbers that make sense in
// whatever state they meet (a position is taken modulo the length and two: so one beyond the end
// comes up as well). So a script stays a script when operations are left out, which is all that
// shrinking needs, and a printed one can be pasted into a test:
//
//   EXPECT_EQ("", FailureOf(*ParseScript("create 0 1 0 1\nappend 0 3\n"), {}));
//
// Why not rapidcheck: it shrinks its own inputs, by its own choices; it cannot shrink a script that
// was pasted in or that came from elsewhere, and takes no advice about which operations belong
// together. It would save the thirty lines of Shrink.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace cairn::testing {

// a..d: what the numbers of an operation mean; those that are missing are 0.
enum class OpKind : uint8_t {
  kCreate,   // slot, name, namespace, 4 * model + priority. Nothing happens when the slot is taken.
  kAppend,   // slot, tokens, how much of the KV comes (0: all), kAppend* flags
  kMany,     // slot, number of appends of one token, 1: not waited for, flags
  kLarge,    // slot, tokens: enough to go into a table of its own where the model has KV
  kDraft,    // slot, positions staged, tokens taken (0: aborted), 1: another append comes between
  kBatch,    // slot, other slot, which (see Runner::Batch), tokens
  kFork,     // slot, position, name, 32 * namespace (0: its own) + slot of the fork
  kRewind,   // slot, positions, 0: back by that many, 1: to that position
  kDrop,     // slot
  kRename,   // slot, name
  kFill,     // slot, how many positions short of the end: KV that lags
  kRefill,   // slot: all KV that it has had, evicted or not
  kKeep,     // slot, pinned, priority
  kPolicy,   // of the namespaces with a quota (0, 1) and with a persist policy (2..4)
  kRead,     // slot, begin, end: ids, KV, states, spans
  kList,     // listings of all namespaces, in pages of a
  kWrong,    // slot, which: a call that must fail (see Runner::Wrong)
  kFlush,    //
  kCompact,  //
  kVerify,   // level
  kReopen,   //
  kKill,     // the machine stops after a flush; where it cannot, as kReopen
  kCopy,     // a checkpoint, opened and compared
};
inline constexpr size_t kOpKinds = 23;
const char* OpKindName(OpKind kind);

// kAppend: does not wait; with a sampler, metadata, a span; ends its turn; names its length.
inline constexpr uint32_t kAppendAsync = 1, kAppendSampler = 2, kAppendMetadata = 4,
                          kAppendSpan = 8, kAppendEndsTurn = 16, kAppendExpects = 32,
                          kAppendAtomicSpan = 64, kAppendProcess = 128, kAppendPower = 256;

struct ScriptOp {
  OpKind kind{};
  uint32_t a = 0, b = 0, c = 0, d = 0;
  bool operator==(const ScriptOp&) const = default;
};
using Script = std::vector<ScriptOp>;

// One operation a line.
std::string ToString(const Script& script);
// Nothing for what ToString never prints. Empty lines and those beginning with '#' are left out.
std::optional<Script> ParseScript(const std::string& text);

// Operations that an adversary would prefer.
struct Profile {
  const char* name;
  std::array<uint32_t, kOpKinds> weights;  // By OpKind.
  uint32_t evicting = 25;  // Branches in a hundred that are made where KV is evicted.
};
const std::vector<Profile>& Profiles();
inline constexpr uint32_t kSlots = 16;

Script GenerateScript(uint64_t seed, const Profile& profile, size_t operations);

// The shortest script that can be found by leaving out operations, runs of them first, and then
// making their numbers smaller, for which `fails` still holds. REQUIRES: it holds for `script`.
Script Shrink(Script script, const std::function<bool(const Script&)>& fails);

}  // namespace cairn::testing
