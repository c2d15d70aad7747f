// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/bit_rot.h"

#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/core/align.h"
#include "base/core/check.h"
#include "cairn/store.h"
#include "sim/world.h"
#include "tests/support/kv_pool.h"
#include "tests/support/test_store.h"
#include "wal/format.h"

namespace cairn::crash {

namespace {

using testing::KvSet;
using testing::Layout;

constexpr char kPath[] = "store";
constexpr uint64_t kSectorBytes = 512;
constexpr uint64_t kSeed = 7;               // Generates all KV.
constexpr uint64_t kFillerTokens = 20'000;  // Zeros, so that a segment gets full of little.

// KV of one row per token, and a state every now and then.
ModelSpec Model() {
  ModelSpec model = testing::TinyModel("rot");
  model.groups.push_back(LayerGroup::Recurrent(1, 24));
  return model;
}

Options RotOptions(const io::SimWorld& machine) {
  Options options = testing::TinyOptions();
  options.max_memory_bytes = 16 << 20;
  options.hot_tail_bytes = 256 << 10;
  options.executor_threads = 1;
  options.snapshot_interval_tokens = 0;  // Sealed is what Compact seals.
  options.max_delta_chain = 0;
  options.world = std::make_shared<const io::World>(machine.world());
  return options;
}

// The content that a branch must have; its KV and states follow from their positions.
struct Content {
  std::vector<TokenId> tokens;
  uint64_t kv_length = 0;
  uint64_t metadata = 0;  // The number in the newest one, 0: none.
  bool operator==(const Content&) const = default;
};
using Contents = std::map<std::string, Content>;

std::vector<std::byte> MetadataBytes(uint64_t number) {
  std::vector<std::byte> bytes(24);
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

// Makes the store, and notes what it holds.
class Maker {
 public:
  explicit Maker(bool killed) : killed_(killed) {}

  Contents contents;
  std::vector<Contents> without;                          // The last group, the last two.
  std::map<std::string, std::vector<std::byte>> earlier;  // Files as they were in the middle.
  std::unique_ptr<io::SimDisk> disk;

  void Make() {
    const io::SimWorld machine = io::MakeSimWorld(1);
    Open(machine);
    Grow("chat", 40, 1);
    Grow("other", 12, 2);
    Fork("chat", 17, "fork");
    Grow("fork", 9, 1);
    CAIRN_CHECK(store_.Compact().ok());
    Grow("other", 7, 2);
    for (const std::string& path : machine.disk->Files()) {
      earlier[path] = *machine.disk->ReadRaw(path);
    }
    Grow("chat", 90, 1);
    Grow("fresh", 20, 3);
    CAIRN_CHECK(store_.Compact().ok());
    CAIRN_CHECK(store_.Close().ok());
    Open(machine);
    Grow("fresh", 6, 3);
    for (int i = 0; i < 3; ++i) AppendZeros();  // Fills a segment, and begins the next.
    Grow("late", 11, 4);
    Fork("late", 5, "later");
    if (!killed_) {
      CAIRN_CHECK(store_.Close().ok());
      Open(machine);
    }
    const Contents without_two = contents;
    Grow("chat", 3, 1);
    if (killed_) without = {contents, without_two};
    Grow("late", 4, 4);
    if (!killed_) CAIRN_CHECK(store_.Close().ok());
    disk = machine.disk->CrashClone(io::CrashChoice::KeepAll());
  }

 private:
  void Open(const io::SimWorld& machine) {
    auto opened = Store::Open(kPath, RotOptions(machine));
    CAIRN_CHECK(opened.ok());
    store_ = std::move(*opened);
    model_ = *store_.RegisterModel(Model());
  }

  Branch Find(const std::string& name) {
    auto branch = store_.FindBranch(name);
    if (!branch.ok()) branch = store_.CreateBranch(model_, {.name = name});
    CAIRN_CHECK(branch.ok());
    return *branch;
  }

  // One append of `count` tokens, their KV, the states after the last of them, and metadata.
  void Grow(const std::string& name, uint64_t count, uint64_t seed) {
    Branch branch = Find(name);
    Content& content = contents[name];
    const uint64_t begin = content.tokens.size();
    const std::vector<TokenId> tokens = testing::Tokens(count, seed * 1000 + begin);
    content.tokens.insert(content.tokens.end(), tokens.begin(), tokens.end());
    content.kv_length = content.tokens.size();
    content.metadata = ++number_;
    KvSet kv(Model(), Layout::kContiguous, begin, count);
    kv.Write(kSeed, begin, begin + count);
    AppMetadata metadata{.content_type = "number", .bytes = MetadataBytes(content.metadata)};
    SamplerState sampler;
    sampler.generator = GeneratorKind::kPhilox;
    sampler.philox_offset = content.metadata;
    Delta delta;
    delta.tokens = tokens;
    delta.kv = kv.View({{begin, count}, {begin + count - 1, 1}});
    delta.sampler = &sampler;
    delta.metadata = &metadata;
    CAIRN_CHECK(branch.AppendSync(delta, {.durability = Durability::kPower}).ok());
  }

  void AppendZeros() {
    Branch branch = Find("zeros");
    Content& content = contents["zeros"];
    const std::vector<TokenId> tokens(kFillerTokens);
    content.tokens.insert(content.tokens.end(), tokens.begin(), tokens.end());
    CAIRN_CHECK(branch.AppendSync({.tokens = tokens}, {.durability = Durability::kPower}).ok());
  }

  void Fork(const std::string& from, uint64_t position, const std::string& name) {
    const auto child =
        Find(from).ForkAt(position, {.name = name, .durability = Durability::kPower});
    CAIRN_CHECK(child.ok());
    Content content = contents[from];
    content.tokens.resize(position);
    content.kv_length = position;
    content.metadata = 0;  // None that belongs to a position of its own.
    contents[name] = content;
  }

  const bool killed_;
  Store store_;
  ModelId model_{};
  uint64_t number_ = 0;
};

bool IsLog(const std::string& path) { return path.find("/log/") != std::string::npos; }

struct Group {
  std::string path;
  uint64_t begin = 0, end = 0;
};

// Those of the log, the last one first.
std::vector<Group> FindGroups(const io::SimDisk& disk) {
  std::map<uint64_t, Group, std::greater<>> groups;  // By sequence.
  for (const std::string& path : disk.Files()) {
    if (!IsLog(path) || path.find("spare") != std::string::npos) continue;
    const std::vector<std::byte> bytes = *disk.ReadRaw(path);
    for (uint64_t at = wal::kFirstGroupOffset; at + wal::kBlock <= bytes.size();
         at += wal::kBlock) {
      const auto group = wal::LoadAs<wal::GroupHeader>(bytes.data() + at);
      if (group.magic != wal::kGroupMagic) continue;
      groups[group.first_sequence] = {path, at, AlignUp(at + group.length, wal::kBlock)};
    }
  }
  std::vector<Group> list;
  for (auto& [sequence, group] : groups) list.push_back(std::move(group));
  return list;
}

// One damage: other bytes at a place, or an end.
struct Damage {
  std::string path, what;
  uint64_t offset = 0;
  std::vector<std::byte> bytes{};
  std::optional<uint64_t> cut{};
};

class BitRot {
 public:
  explicit BitRot(const BitRotOptions& options) : options_(options), maker_(options.killed) {
    maker_.Make();
    for (const std::string& path : maker_.disk->Files()) {
      files_[path] = *maker_.disk->ReadRaw(path);
    }
    groups_ = FindGroups(*maker_.disk);
  }

  BitRotResult Run() {
    // Hundreds of thousands of stores, each with a few MiB of buffers: keep those mapped.
    mallopt(M_MMAP_THRESHOLD, 256 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    const Damage none{.path = files_.begin()->first, .what = "nothing"};
    if (Try(none); result_.nothing != 1) Violation(none, "is not whole before");
    result_.nothing = 0;
    result_.nothing_in.clear();
    for (const auto& [path, bytes] : files_) {
      FlipAll(path, bytes);
      MixSectors(path, bytes);
      for (uint64_t cut = 0; cut < bytes.size(); cut += kSectorBytes) {
        if (Skip()) continue;
        ++result_.cuts;
        Try({.path = path, .what = "cut to " + std::to_string(cut), .cut = cut});
      }
      if (!result_.violation.empty()) break;
    }
    return result_;
  }

 private:
  static bool AllZero(std::span<const std::byte> bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
  }

  bool Skip() { return next_++ % options_.sector_stride != 0; }

  void FlipAll(const std::string& path, const std::vector<std::byte>& bytes) {
    for (uint64_t at = 0; at < bytes.size(); at += Step(bytes, at)) {
      ++result_.flips;
      Try({.path = path,
           .what = "a bit flipped at " + std::to_string(at),
           .offset = at,
           .bytes = {bytes[at] ^ static_cast<std::byte>(1u << (at % 8))}});
    }
  }

  // To the next byte that is flipped. One that is no multiple of what the formats align to meets
  // every field sooner or later.
  uint64_t Step(const std::vector<std::byte>& bytes, uint64_t at) const {
    const uint64_t sector = at / kSectorBytes * kSectorBytes;
    const uint64_t in_sector = std::min<uint64_t>(kSectorBytes, bytes.size() - sector);
    const bool zero = AllZero(std::span(bytes).subspan(sector, in_sector));
    return options_.flip_stride * (zero ? kSectorBytes - 1 : 1);
  }

  // Every sector zeroed, and replaced by others.
  void MixSectors(const std::string& path, const std::vector<std::byte>& bytes) {
    const std::span<const std::byte> all(bytes);
    const auto earlier = maker_.earlier.find(path);
    for (uint64_t at = 0; at < bytes.size(); at += kSectorBytes) {
      const uint64_t length = std::min<uint64_t>(kSectorBytes, bytes.size() - at);
      const auto replace = [&](const std::string& what, std::span<const std::byte> by) {
        if (by.size() > length) by = by.first(length);
        if (by.empty() || std::ranges::equal(by, all.subspan(at, by.size())) || Skip()) return;
        ++result_.sectors;
        Try({.path = path,
             .what = "sector " + std::to_string(at) + " " + what,
             .offset = at,
             .bytes = {by.begin(), by.end()}});
      };
      replace("zeroed", std::vector<std::byte>(length));
      // Swapped with another: the next one, and one from far away.
      for (const uint64_t step : {kSectorBytes, uint64_t{4096}}) {
        const uint64_t other = at + step;
        if (other + kSectorBytes > bytes.size()) continue;
        std::vector<std::byte> swapped(bytes.begin() + static_cast<ptrdiff_t>(at),
                                       bytes.begin() + static_cast<ptrdiff_t>(other + length));
        std::swap_ranges(swapped.begin(), swapped.begin() + static_cast<ptrdiff_t>(length),
                         swapped.begin() + static_cast<ptrdiff_t>(step));
        if (std::ranges::equal(swapped, all.subspan(at, swapped.size())) || Skip()) continue;
        ++result_.sectors;
        Try({.path = path,
             .what = "sectors swapped, " + std::to_string(at) + " and " + std::to_string(other),
             .offset = at,
             .bytes = std::move(swapped)});
      }
      if (earlier != maker_.earlier.end() && at < earlier->second.size()) {
        replace("as it was earlier", std::span(earlier->second).subspan(at));
      }
      const auto next = files_.upper_bound(path);
      const auto& [other, others] = next == files_.end() ? *files_.begin() : *next;
      if (at < others.size()) replace("of " + other, std::span(others).subspan(at));
    }
  }

  // How many of the last groups it hits, without one between. In a log that was not closed these
  // may go without a word: a group looks like one that was never finished unless one behind it is
  // whole.
  size_t HitsLast(const Damage& damage) const {
    size_t hit = 0;
    for (; hit < maker_.without.size(); ++hit) {
      const Group& group = groups_[hit];
      const uint64_t end = damage.cut ? UINT64_MAX : damage.offset + damage.bytes.size();
      if (damage.path != group.path || group.begin >= end ||
          damage.cut.value_or(damage.offset) >= group.end) {
        break;
      }
    }
    return hit;
  }

  static bool Names(const std::string& path, std::string_view message) {
    return message.find(path.substr(path.rfind('/') + 1)) != std::string_view::npos;
  }

  static std::string KindOf(const std::string& path) {
    if (path.find("spare") != std::string::npos) return "spare";
    if (IsLog(path)) return "log";
    if (path.find("MANIFEST") != std::string::npos) return "MANIFEST";
    const size_t dot = path.rfind('.');
    return dot == std::string::npos ? path.substr(path.rfind('/') + 1) : path.substr(dot + 1);
  }

  // Tells of a failure that is no proper one. Always false.
  bool Accept(const Damage& damage, const std::string& who, const Status& status) {
    if (status.code() != StatusCode::kCorruption &&
        status.code() != StatusCode::kUnsupportedFormat) {
      Violation(damage, who + ": " + status.ToString());
    } else if (!Names(damage.path, status.message())) {
      Violation(damage, who + " does not name the file: " + status.ToString());
    }
    return false;
  }

  void Try(const Damage& damage) {
    if (!result_.violation.empty()) return;
    const io::SimWorld machine = io::CrashWorld(*maker_.disk, io::CrashChoice::KeepAll());
    if (damage.cut) CAIRN_CHECK(machine.disk->TruncateRaw(damage.path, *damage.cut).ok());
    CAIRN_CHECK(machine.disk->WriteRaw(damage.path, damage.offset, damage.bytes).ok());
    Options options = RotOptions(machine);
    options.create_if_missing = false;
    options.read_only = tried_++ % 2 == 0;
    auto opened = Store::Open(kPath, options);
    if (!opened.ok()) {
      ++result_.refused;
      Accept(damage, "open", opened.status());
      TrySetAside(damage);
      return;
    }
    const std::optional<Contents> found = Read(damage, *opened);
    if (!result_.violation.empty()) return;
    const auto report = opened->Verify(VerifyLevel::kAll);
    bool told = !report.ok();
    if (!report.ok()) {
      Accept(damage, "Verify", report.status());
    } else {
      for (const VerifyReport::Damage& one : report->damages) {
        told = true;
        const std::string text = one.where + ": " + one.what;
        if (!Names(damage.path, text)) Violation(damage, "Verify names another file: " + text);
      }
    }
    if (!found.has_value()) {
      ++result_.failed_reads;
      if (!told) Violation(damage, "reads fail, and Verify has nothing to say");
    } else if (*found == maker_.contents) {
      ++(told ? result_.told_by_verify : result_.nothing);
      if (!told) ++result_.nothing_in[KindOf(damage.path)];
    } else if (IsWithoutLast(damage, *found)) {
      ++result_.shortened;
    } else {
      Violation(damage, "other contents, without a word; Verify " +
                            std::string(told ? "tells" : "has nothing to say"));
    }
  }

  // With what is damaged set aside, each branch that is served is a beginning of what was written,
  // and the next opening serves the same.
  void TrySetAside(const Damage& damage) {
    if (result_.refused % options_.set_aside_stride != 0) return;
    const io::SimWorld machine = io::CrashWorld(*maker_.disk, io::CrashChoice::KeepAll());
    if (damage.cut) CAIRN_CHECK(machine.disk->TruncateRaw(damage.path, *damage.cut).ok());
    CAIRN_CHECK(machine.disk->WriteRaw(damage.path, damage.offset, damage.bytes).ok());
    Options options = RotOptions(machine);
    options.create_if_missing = false;
    options.recovery = Recovery::kSetAside;
    std::optional<Contents> before;
    for (int opening = 0; opening < 2; ++opening) {
      auto store = Store::Open(kPath, options);
      if (!store.ok()) {
        Accept(damage, "open with what is damaged set aside", store.status());
        if (opening != 0) Violation(damage, "what was set aside is refused the next time");
        return;
      }
      ++result_.set_aside;
      const auto page = store->ListBranches("", "", SIZE_MAX);
      if (!page.ok()) return Violation(damage, "set aside, and the list fails");
      Contents found;
      for (const BranchInfo& info : page->branches) {
        const auto known = maker_.contents.find(info.name);
        const std::optional<Content> content = ReadBranch(damage, *store, info);
        if (!content.has_value()) continue;
        const std::vector<TokenId>& tokens = content->tokens;
        if (known == maker_.contents.end() || tokens.size() > known->second.tokens.size() ||
            !std::equal(tokens.begin(), tokens.end(), known->second.tokens.begin())) {
          Violation(damage, "set aside, and \"" + info.name + "\" is none that was written");
        }
        found[info.name] = *content;
      }
      if (before.has_value() && *before != found) {
        Violation(damage, "set aside, and the next opening serves something else");
      }
      before = std::move(found);
    }
  }

  // Everything readable; nothing when a read was refused. Readable content is always right.
  std::optional<Contents> Read(const Damage& damage, Store& store) {
    const auto page = store.ListBranches("", "", SIZE_MAX);
    if (!page.ok()) {
      Accept(damage, "ListBranches", page.status());
      return std::nullopt;
    }
    Contents found;
    bool all = true;
    for (const BranchInfo& info : page->branches) {
      std::optional<Content> content = ReadBranch(damage, store, info);
      all &= content.has_value();
      if (content.has_value()) {
        found[info.name] = std::move(*content);
        continue;
      }
      // Its contents are damaged, but not what is known of it.
      if (!MayBe(damage, info.name,
                 [&](const Content& known) { return known.tokens.size() == info.length; })) {
        Violation(damage, "another length of \"" + info.name + "\"");
      }
    }
    if (all) return found;
    if (page->branches.size() != maker_.contents.size()) {
      Violation(damage, "branches are missing beside reads that fail");
    }
    for (const auto& [name, content] : found) {
      if (!MayBe(damage, name, [&](const Content& known) { return known == content; })) {
        Violation(damage, "wrong contents of \"" + name + "\" beside reads that fail");
      }
    }
    return std::nullopt;
  }

  bool IsWithoutLast(const Damage& damage, const Contents& found) const {
    const auto begin = maker_.without.begin();
    const auto end = begin + static_cast<ptrdiff_t>(HitsLast(damage));
    return std::find(begin, end, found) != end;
  }

  // Whether a branch is as it was written, or was before the groups that may go.
  bool MayBe(const Damage& damage, const std::string& name,
             const std::function<bool(const Content&)>& is) {
    std::vector<const Contents*> states = {&maker_.contents};
    for (size_t i = 0; i < HitsLast(damage); ++i) states.push_back(&maker_.without[i]);
    return std::any_of(states.begin(), states.end(), [&](const Contents* state) {
      const auto known = state->find(name);
      return known != state->end() && is(known->second);
    });
  }

  // Tokens, KV and states, each separately; nothing when one of them was refused.
  std::optional<Content> ReadBranch(const Damage& damage, Store& store, const BranchInfo& info) {
    bool all = true;
    const auto ok = [&](const char* who, const auto& result) {
      if (!result.ok()) all = Accept(damage, who, result.status());
      return result.ok();
    };
    const auto branch = store.FindBranch(info.name);
    if (!ok("FindBranch", branch)) return std::nullopt;
    Content content;
    content.kv_length = info.kv_lengths.at(0);
    auto tokens = branch->ReadTokens(0, info.length);
    if (ok("ReadTokens", tokens)) content.tokens = std::move(*tokens);
    // A fork need not have a state at its end.
    const auto end = branch->RestorableLength(content.kv_length);
    if (ok("RestorableLength", end) && *end != 0) {
      KvSet got(Model(), Layout::kContiguous, 0, *end);
      RestoreRequest request{.end = *end};
      request.into = got.View({{0, *end}, {*end - 1, 1}});
      if (ok("Restore", branch->Restore(request)) && !(got == Want(*end))) {
        Violation(damage, "wrong bytes of KV or of a state of \"" + info.name + "\"");
      }
    }
    const auto metadata = branch->MetadataAt(info.length);
    const auto sampler = branch->SamplerAt(info.length);
    const bool none = metadata.status().code() == StatusCode::kNotFound &&
                      sampler.status().code() == StatusCode::kNotFound;
    if (!none && ok("MetadataAt", metadata) && ok("SamplerAt", sampler)) {
      content.metadata = sampler->sampler->philox_offset;
      if (metadata->metadata->bytes != MetadataBytes(content.metadata)) {
        Violation(damage, "wrong bytes in a state of \"" + info.name + "\"");
      }
    }
    if (!all) return std::nullopt;
    return content;
  }

  const KvSet& Want(uint64_t end) {
    std::unique_ptr<KvSet>& want = wanted_[end];
    if (want == nullptr) {
      want = std::make_unique<KvSet>(Model(), Layout::kContiguous, 0, end);
      want->pool(0).Write(kSeed, 0, end);
      want->pool(1).Write(kSeed, end - 1, end);
    }
    return *want;
  }

  void Violation(const Damage& damage, const std::string& what) {
    if (!result_.violation.empty()) return;
    result_.violation = damage.path + ", " + damage.what +
                        (options_.killed ? " (killed)" : " (closed)") +
                        (tried_ % 2 == 1 ? ", read only" : "") + ": " + what;
  }

  const BitRotOptions options_;
  Maker maker_;
  std::map<std::string, std::vector<std::byte>> files_;
  std::vector<Group> groups_;
  std::map<uint64_t, std::unique_ptr<KvSet>> wanted_;  // By length.
  BitRotResult result_;
  uint64_t tried_ = 0, next_ = 0;
};

}  // namespace

std::string BitRotResult::ToString() const {
  std::string where;
  for (const auto& [kind, count] : nothing_in) where += " " + kind + " " + std::to_string(count);
  return std::to_string(flips) + " flips, " + std::to_string(sectors) + " sectors, " +
         std::to_string(cuts) + " cuts: " + std::to_string(refused) + " refused at opening, " +
         std::to_string(failed_reads) + " reads failed, " + std::to_string(told_by_verify) +
         " told by Verify, " + std::to_string(shortened) + " took the last group, " +
         std::to_string(set_aside) + " openings with it set aside, " + std::to_string(nothing) +
         " changed nothing (in" + where + ")";
}

BitRotResult RunBitRot(const BitRotOptions& options) { return BitRot(options).Run(); }

}  // namespace cairn::crash
