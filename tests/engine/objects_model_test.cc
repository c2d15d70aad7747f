// SPDX-License-Identifier: Apache-2.0
//
// Property: whatever is put, replaced, deleted, touched, evicted, reopened and lost in a power cut,
// each key shows what a map shows: never another object's bytes, never none where one was
// acknowledged at kPower, and Exists and List say what Get says.
// Method: generated histories on a simulated machine, whose power also fails in the middle of a
// batch; a reader beside looks at times.
#include <map>
#include <random>

#include "sim/world.h"
#include "tests/engine/objects_test.h"

namespace cairn::testing {
namespace {

constexpr uint32_t kPage = 512;
constexpr size_t kBytesMax = 200'000;
// The value that was put, from which Content makes the bytes; nothing: no object.
struct Value {
  uint64_t seed = 0;
  size_t bytes = 0;
  bool operator==(const Value&) const = default;
};
using Shown = std::optional<Value>;

class ObjectHistory {
 public:
  explicit ObjectHistory(uint64_t seed) : random_(seed), sim_(io::MakeSimWorld(seed)) {
    for (int i = 0; i < 24; ++i) {
      keys_.push_back("key " + std::to_string(i) + std::string(static_cast<size_t>(i % 3), '\0'));
      into_.emplace_back(kBytesMax);
    }
    Open();
    EXPECT_OK(Space().SetPolicy("capped", {.max_bytes = 60'000, .evict = Evict::kBranches}));
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) {
      SCOPED_TRACE("step " + std::to_string(i));
      const uint64_t what = Below(100);
      if (what < 45) {
        Put();
      } else if (what < 60) {
        Delete();
      } else if (what < 65) {
        EXPECT_OK(Space().Touch(Views(), Namespace()));
      } else if (what < 75) {
        Check(store_, "");
        Check(store_, "capped");
      } else if (what < 80) {
        EXPECT_OK(store_.Compact());
      } else if (what < 85) {
        Follow();
      } else if (what < 92) {
        EXPECT_OK(store_.Close());
        Settle();
        Open();
      } else {
        io::SimWorld machine = io::CrashWorld(*sim_.disk, Choice());
        Crash(std::move(machine));
      }
    }
    Check(store_, "");
    Check(store_, "capped");
    const auto report = store_.Verify(VerifyLevel::kAll);
    ASSERT_OK(report);
    EXPECT_TRUE(report->damages.empty());
    EXPECT_OK(store_.Close());
  }
  uint64_t crashes() const { return crashes_; }
  uint64_t lost() const { return lost_; }
  uint64_t evicted() const { return evicted_; }
  uint64_t asked() const { return asked_; }

 private:
  // The value of a key, and other values that it may have after a crash.
  struct Known {
    Shown now{};
    std::vector<Shown> before{};
  };
  using Id = std::pair<std::string, std::string>;

  uint64_t Below(uint64_t end) { return random_() % end; }
  std::string Namespace() { return Below(3) == 0 ? "capped" : ""; }
  Objects Space() { return Objects(store_); }
  std::vector<std::string_view> Views() const { return {keys_.begin(), keys_.end()}; }
  io::CrashChoice Choice() {
    const uint64_t how = Below(4);
    if (how == 0) return io::CrashChoice::KeepAll();
    return how == 1 ? io::CrashChoice::LoseAll() : io::CrashChoice::Seeded(random_());
  }
  Options MakeOptions() const {
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(sim_.world());
    return options;
  }
  void Open() {
    Options options = MakeOptions();
    if (Below(2) == 0) options.tree_memory_bytes = 0;
    if (Below(2) == 0) options.reuse_memory_bytes = 8 << 10;  // Room for none, mostly.
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(class_, Space().RegisterClass({.name = "pages", .page_bytes = kPage}));
  }
  // All that is shown now survives a crash as well.
  void Settle() {
    for (auto& [id, known] : known_) known.before.clear();
  }
  void Show(const Id& id, const Shown& shown) {
    Known& known = known_[id];
    known.before.push_back(std::exchange(known.now, shown));
  }

  void Put() {
    static constexpr size_t kSizes[] = {0, 1, 511, 512, 513, 3000, 20'000, 20'000, kBytesMax};
    const std::string ns = Namespace();
    const bool replaces = Below(2) == 0;
    const auto durability = static_cast<Durability>(Below(3));
    std::vector<Value> values(1 + Below(8));
    std::vector<std::vector<std::byte>> contents;
    std::vector<ObjectPut> puts;
    for (Value& value : values) {
      // No more than the cap holds.
      value = {++last_seed_, kSizes[Below(std::size(kSizes) - (ns.empty() ? 0 : 1))]};
      contents.push_back(Content(value.seed, value.bytes));
      puts.push_back({.key = keys_[Below(keys_.size())],
                      .value = contents.back(),
                      .depth = static_cast<uint32_t>(Below(3))});
    }
    std::optional<io::SimWorld> machine;
    if (Below(6) == 0) {
      sim_.disk->set_on_operation([&, at = Below(12)](const io::SimOperation&) mutable {
        if (at-- == 0) machine = io::CrashWorld(*sim_.disk, Choice());
      });
    }
    const PutOptions options{.ns = ns,
                             .object_class = class_,
                             .if_present = replaces ? IfPresent::kReplace : IfPresent::kKeep,
                             .durability = durability};
    const auto results = Space().PutBatch(puts, options);
    sim_.disk->set_on_operation(nullptr);
    ASSERT_OK(results);
    for (size_t i = 0; i < puts.size(); ++i) {
      const Id id{ns, std::string(puts[i].key)};
      const PutResult& result = (*results)[i];
      ASSERT_OK(result.status) << i;
      if (ns.empty()) {
        EXPECT_EQ(replaces || !known_[id].now.has_value(), result.stored);
      }
      if (result.stored) Show(id, values[i]);
    }
    if (machine.has_value()) return Crash(std::move(*machine));
    if (durability == Durability::kPower) Settle();
  }

  void Delete() {
    const std::string ns = Namespace();
    const auto durability = static_cast<Durability>(Below(3));
    std::vector<std::string_view> keys;
    for (uint64_t i = 0; i < 1 + Below(4); ++i) keys.push_back(keys_[Below(keys_.size())]);
    ASSERT_OK_ASSIGN(const std::vector<Status> outcomes, Space().Delete(keys, ns, durability));
    for (size_t i = 0; i < keys.size(); ++i) {
      const Id id{ns, std::string(keys[i])};
      if (ns.empty()) {
        EXPECT_EQ(known_[id].now.has_value(), outcomes[i].ok()) << outcomes[i].ToString();
      }
      Show(id, {});
    }
    if (durability == Durability::kPower) Settle();
  }

  // The store's value for each key of a namespace, by the possible values.
  std::vector<Shown> Read(const Store& store, const std::string& ns) {
    const Objects space(store);
    std::vector<ObjectGet> gets;
    for (size_t i = 0; i < keys_.size(); ++i) gets.push_back({.key = keys_[i], .into = into_[i]});
    const auto results = space.GetBatch(gets, {.ns = ns});
    EXPECT_OK(results);
    std::vector<Shown> shown(keys_.size());
    for (size_t i = 0; results.ok() && i < keys_.size(); ++i) {
      const GetResult& result = (*results)[i];
      if (result.status.code() == StatusCode::kNotFound) continue;
      EXPECT_OK(result.status);
      const Known& known = known_[{ns, keys_[i]}];
      std::vector<Shown> may = known.before;
      may.push_back(known.now);
      for (const Shown& value : may) {
        if (!value.has_value() || value->bytes != result.bytes) continue;
        const auto content = Content(value->seed, value->bytes);
        if (std::equal(content.begin(), content.end(), into_[i].begin())) shown[i] = value;
      }
      EXPECT_TRUE(shown[i].has_value()) << "other bytes under " << keys_[i];
    }
    return shown;
  }

  void Check(const Store& store, const std::string& ns) {
    SCOPED_TRACE("namespace '" + ns + "'");
    const std::vector<Shown> shown = Read(store, ns);
    std::vector<std::string> listed;
    for (size_t i = 0; i < keys_.size(); ++i) {
      Known& known = known_[{ns, keys_[i]}];
      if (!ns.empty() && !shown[i].has_value() && known.now.has_value()) {
        ++evicted_;
        Show({ns, keys_[i]}, {});
      }
      EXPECT_TRUE(shown[i] == known.now) << keys_[i];
      if (shown[i].has_value()) listed.push_back(keys_[i]);
    }
    if (!ns.empty()) return;  // There, the background evicts meanwhile.
    ASSERT_OK_ASSIGN(const ObjectsFound found, Objects(store).Exists(Views()));
    EXPECT_EQ(listed.size(), found.count);
    for (size_t i = 0; i < keys_.size(); ++i) EXPECT_EQ(shown[i].has_value(), found[i]) << keys_[i];
    std::sort(listed.begin(), listed.end());
    ASSERT_OK_ASSIGN(const ObjectPage page, Objects(store).List(ns, keys_.size() + 1));
    ASSERT_EQ(listed.size(), page.objects.size());
    for (size_t i = 0; i < listed.size(); ++i) EXPECT_EQ(listed[i], page.objects[i].key);
    asked_ += store.Metrics().objects_unknown;
  }

  // A reader of a process beside shows what is written.
  void Follow() {
    ASSERT_OK(store_.Flush());
    Options options = MakeOptions();
    options.create_if_missing = false;
    options.read_only = true;
    ASSERT_OK_ASSIGN(Store follower, Store::Open("/store", options));
    Check(follower, "");
    EXPECT_OK(follower.Close());
  }

  void Crash(io::SimWorld machine) {
    EXPECT_OK(store_.Close());
    store_ = Store();
    sim_ = std::move(machine);
    Open();
    ++crashes_;
    for (const std::string ns : {"", "capped"}) {
      const std::vector<Shown> shown = Read(store_, ns);
      for (size_t i = 0; i < keys_.size(); ++i) {
        Known& known = known_[{ns, keys_[i]}];
        const bool may_be =
            shown[i] == known.now ||
            std::find(known.before.begin(), known.before.end(), shown[i]) != known.before.end() ||
            (!ns.empty() && !shown[i].has_value());
        EXPECT_TRUE(may_be) << "a crash lost or made " << keys_[i] << " of '" << ns << "'";
        lost_ += shown[i] != known.now;
        known = {.now = shown[i]};
      }
    }
    Check(store_, "");
  }

  std::mt19937_64 random_;
  io::SimWorld sim_;
  std::vector<std::string> keys_;
  std::vector<std::vector<std::byte>> into_;
  std::map<Id, Known> known_;
  uint64_t last_seed_ = 0, crashes_ = 0, lost_ = 0, evicted_ = 0, asked_ = 0;
  ObjectClassId class_{};
  Store store_;  // Goes before its world.
};

TEST(ObjectModelTest, EachKeyShowsWhatAMapShows) {
  uint64_t crashes = 0, lost = 0, evicted = 0, asked = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ObjectHistory history(seed);
    history.Run(120);
    if (HasFailure()) return;
    crashes += history.crashes();
    lost += history.lost();
    evicted += history.evicted();
    asked += history.asked();
  }
  EXPECT_GT(crashes, 60u);
  EXPECT_GT(lost, 60u) << "crashes took nothing back";
  EXPECT_GT(evicted, 60u);
  EXPECT_GT(asked, 1000u) << "the index was hardly asked";
}

}  // namespace
}  // namespace cairn::testing
