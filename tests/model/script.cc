// SPDX-License-Identifier: Apache-2.0
#include "tests/model/script.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <sstream>
#include <utility>

#include "base/core/check.h"

namespace cairn::testing {
namespace {

constexpr const char* kNames[kOpKinds] = {
    "create", "append", "many",    "large",  "draft",  "batch",  "fork", "rewind",
    "drop",   "rename", "fill",    "refill", "keep",   "policy", "read", "list",
    "wrong",  "flush",  "compact", "verify", "reopen", "kill",   "copy"};

constexpr uint32_t ScriptOp::*kNumbers[] = {&ScriptOp::a, &ScriptOp::b, &ScriptOp::c, &ScriptOp::d};

}  // namespace

const char* OpKindName(OpKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::string ToString(const Script& script) {
  std::string text;
  for (const ScriptOp& op : script) {
    text += OpKindName(op.kind);
    int last = 4;
    while (last > 0 && op.*kNumbers[last - 1] == 0) --last;
    for (int i = 0; i < last; ++i) text += " " + std::to_string(op.*kNumbers[i]);
    text += "\n";
  }
  return text;
}

std::optional<Script> ParseScript(const std::string& text) {
  Script script;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    if (!(words >> name) || name[0] == '#') continue;
    const auto* const known = std::find(std::begin(kNames), std::end(kNames), name);
    if (known == std::end(kNames)) return std::nullopt;
    ScriptOp op{.kind = static_cast<OpKind>(known - std::begin(kNames))};
    for (int i = 0; !(words >> std::ws).eof(); ++i) {
      if (i == 4 || !(words >> (op.*kNumbers[i]))) return std::nullopt;
    }
    script.push_back(op);
  }
  return script;
}

// ---------------------------------------------------------------- generating

const std::vector<Profile>& Profiles() {
  // create append many large draft batch fork rewind drop rename fill refill keep policy
  // read list wrong flush compact verify reopen kill copy
  static const std::vector<Profile> profiles = {
      {"balanced", {400, 3000, 300, 200, 150, 300, 700, 700, 400, 150, 300, 100,
                    60,  40,   900, 20,  300, 20,  6,   3,   4,   4,   2}},
      {"tiny appends", {100, 9000, 900, 5,  100, 100, 60, 150, 40, 20, 100, 20,
                        10,  10,   300, 10, 60,  20,  3,  2,   3,  3,  1}},
      {"forks", {150, 1500, 100, 20, 50,  150, 4000, 500, 1800, 100, 300, 60,
                 40,  20,   900, 20, 150, 10,  10,   3,   5,    5,   2}},
      {"rewinds", {150, 3000, 300, 40, 200, 200, 900, 4500, 200, 50, 500, 60,
                   20,  10,   900, 10, 150, 10,  8,   3,    5,   5,  2}},
      {"names", {3000, 1200, 60,  10, 30,  500, 900, 100, 2800, 2500, 60, 10,
                 60,   20,   300, 60, 600, 10,  4,   3,   6,    6,    2}},
      {"eviction",
       {400, 3500, 200, 2500, 100, 200, 300, 150, 150, 60, 300, 500,
        250, 60,   900, 10,   60,  10,  8,   3,   4,   4,  1},
       75},
      {"opening", {300, 2500, 200, 200, 100, 200, 500, 500, 300, 100, 200, 100,
                   40,  40,   500, 40,  100, 40,  20,  10,  50,  50,  8}},
      {"sealing", {300, 2500, 300, 150, 100, 300, 700, 700, 400, 60, 300, 100,
                   20,  20,   700, 10,  60,  30,  90,  6,   5,   5,  3}},
  };
  return profiles;
}

Script GenerateScript(uint64_t seed, const Profile& profile, size_t operations) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t limit) { return static_cast<uint32_t>(random() % limit); };
  const auto& weights = profile.weights;
  const uint32_t total = std::accumulate(weights.begin(), weights.end(), 0u);
  Script script;
  script.reserve(operations);
  uint32_t taken = 0;  // Slots, by bit: as if every operation had worked.
  while (script.size() < operations) {
    uint32_t left = below(total);
    size_t kind = 0;
    while (left >= weights[kind]) left -= weights[kind++];
    ScriptOp op{.kind = static_cast<OpKind>(kind)};
    const bool makes = op.kind == OpKind::kCreate;
    // A slot that fits, as a rule.
    op.a = below(kSlots);
    for (int i = 0; i < 8 && ((taken >> op.a & 1) != 0) == makes; ++i) op.a = below(kSlots);
    switch (op.kind) {
      case OpKind::kCreate:
        op.b = below(4) == 0 ? 0 : 1 + below(24);
        op.c = below(100) < profile.evicting ? 1 : std::array{0u, 2u, 3u}[below(3)];
        op.d = 4 * below(3) + below(4);
        taken |= 1u << op.a;
        break;
      case OpKind::kAppend:
        op.b = below(3) == 0 ? 1 + below(12) : 1;
        op.c = below(3) == 0 ? 1 + below(4) : 0;
        op.d = below(512) & below(512);
        break;
      case OpKind::kMany:
        op.b = 2 + below(9);
        op.c = below(2);
        op.d = below(4) == 0 ? kAppendSampler : 0;
        break;
      case OpKind::kLarge: op.b = 45 + below(20); break;
      case OpKind::kDraft:
        op.b = 1 + below(8);
        op.c = below(op.b + 1);
        op.d = below(8) == 0 ? 1 : 0;
        break;
      case OpKind::kBatch:
        op.b = below(kSlots);
        op.c = below(6);
        op.d = 1 + below(4);
        if (op.c == 1) taken |= 1u << op.b;
        break;
      case OpKind::kFork:
        op.b = below(3) == 0 ? 1000 : below(80);
        op.c = below(3) == 0 ? 0 : 1 + below(24);
        op.d = below(kSlots);
        for (int i = 0; i < 8 && (taken >> op.d & 1) != 0; ++i) op.d = below(kSlots);
        taken |= 1u << op.d;
        op.d += 32 * (below(3) == 0 ? 1 + below(4) : 0);
        break;
      case OpKind::kRewind:
        op.c = below(3) == 0 ? 1 : 0;
        op.b = op.c == 1 ? below(80) : below(5);
        break;
      case OpKind::kDrop: taken &= ~(1u << op.a); break;
      case OpKind::kRename: op.b = below(5) == 0 ? 0 : 1 + below(24); break;
      case OpKind::kFill: op.b = below(3); break;
      case OpKind::kKeep:
        op.b = below(3) == 0 ? 1 : 0;
        op.c = below(4);
        break;
      case OpKind::kPolicy: op.a = below(5); break;
      case OpKind::kRead:
        op.b = below(2) == 0 ? 0 : below(80);
        op.c = below(2) == 0 ? 1000 : below(80);
        break;
      case OpKind::kList: op.a = 1 + below(20); break;
      case OpKind::kWrong: op.b = below(12); break;
      case OpKind::kVerify: op.a = below(3); break;
      default: break;
    }
    if (op.kind >= OpKind::kFlush && op.kind != OpKind::kVerify) op.a = 0;
    script.push_back(op);
  }
  return script;
}

// ---------------------------------------------------------------- shrinking

Script Shrink(Script script, const std::function<bool(const Script&)>& fails) {
  const auto try_without = [&](size_t begin, size_t count) {
    Script shorter(script.begin(), script.begin() + static_cast<ptrdiff_t>(begin));
    const size_t end = std::min(begin + count, script.size());
    shorter.insert(shorter.end(), script.begin() + static_cast<ptrdiff_t>(end), script.end());
    if (!fails(shorter)) return false;
    script = std::move(shorter);
    return true;
  };
  // From the end: what comes after the failure goes at once.
  for (bool again = true; again;) {
    again = false;
    for (size_t count = std::max<size_t>(1, script.size() / 2);; count /= 2) {
      for (size_t end = script.size(); end > 0;) {
        const size_t begin = end - std::min(end, count);
        if (try_without(begin, end - begin)) again = true;
        end = std::min(begin, script.size());
      }
      if (count == 1) break;
    }
  }
  for (size_t i = 0; i < script.size(); ++i) {
    for (uint32_t ScriptOp::*const number : kNumbers) {
      const auto try_with = [&](uint32_t smaller) {
        const uint32_t before = std::exchange(script[i].*number, smaller);
        if (smaller < before && fails(script)) return true;
        script[i].*number = before;
        return false;
      };
      while (try_with(0) || try_with(script[i].*number / 2) || try_with(script[i].*number - 1)) {
      }
    }
  }
  return script;
}

}  // namespace cairn::testing
