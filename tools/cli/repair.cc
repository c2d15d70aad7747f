// SPDX-License-Identifier: Apache-2.0
//
// repair: finds how much of a damaged store can be kept, and makes the cut final.
//
// A store is a prefix of its log. The provable part ends at the first damaged header; everything
// behind is cut, even if it is readable, because it was built on lost records.
#include <cinttypes>
#include <cstdio>
#include <set>
#include <span>

#include "base/core/check.h"
#include "base/io/path.h"
#include "cairn/objects.h"
#include "tools/cli/command.h"
#include "tools/cli/cut_objects.h"
#include "tools/cli/log_walk.h"
#include "tools/cli/names.h"
#include "tools/cli/output.h"
#include "tools/cli/record_text.h"
#include "wal/segment_files.h"

namespace cairn::cli {

namespace {

constexpr uint64_t kCopyBytes = 1 << 20;  // At a time.

struct RepairArguments {
  std::string store;
  bool yes = false;
  bool keep = true;
};

// The store as it is with the cut.
struct Kept {
  uint64_t last_sequence = 0;
  std::string note;  // What is gone, as opening says it.
  std::vector<BranchInfo> branches;
  std::vector<NamespaceInfo> objects;  // By namespace of theirs.
};

struct CutRecord {
  uint64_t sequence;
  std::string text;
};

// Collects what lies behind the cut, and where the damage is.
class CutFinder final : public LogVisitor {
 public:
  CutFinder(uint64_t last_kept, const StoreId& store)
      : objects(last_kept), last_kept_(last_kept), store_(store) {}

  void OnSegment(const wal::SegmentReader&, const wal::SegmentHeader&) override {}
  void OnGroup(const wal::SegmentReader::Group& group) override {
    for (const wal::RecordView& view : group.records) {
      objects.Add(view);
      if (view.sequence <= last_kept_) continue;
      cut.push_back({view.sequence, DescribeRecord(view, store_, {}).line});
      segments.insert(view.location.segment);
    }
  }
  void OnStop(const LogStop& stop) override {
    if (stop.kind != LogStop::Kind::kDamaged) return;
    damages.push_back(stop);
    segments.insert(stop.segment);
  }

  std::vector<CutRecord> cut;  // Readable, but given up.
  CutObjects objects;          // The objects that those made.
  std::vector<LogStop> damages;
  std::set<uint64_t> segments;  // Those with either in them.

 private:
  const uint64_t last_kept_;
  const StoreId store_;
};

Result<std::vector<BranchInfo>> AllBranches(const Store& store) {
  std::vector<BranchInfo> branches;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<NamespaceInfo> namespaces, store.Namespaces());
  for (const NamespaceInfo& ns : namespaces) {
    std::string cursor;
    do {
      CAIRN_ASSIGN_OR_RETURN(const BranchPage page, store.ListBranches(ns.name, "", 1000, cursor));
      branches.insert(branches.end(), page.branches.begin(), page.branches.end());
      cursor = page.cursor;
    } while (!cursor.empty());
  }
  return branches;
}

Result<Kept> LookAtKept(const std::string& path) {
  Options options = WritingOptions();
  options.read_only = true;
  options.recovery = Recovery::kSetAside;
  const Result<Store> opened = OpenStore(path, options);
  if (opened.status().code() == StatusCode::kCorruption) {
    return Status(StatusCode::kCorruption,
                  std::string(opened.status().message()) +
                      "; repair cannot mend this: use a checkpoint of the store");
  }
  CAIRN_RETURN_IF_ERROR(opened.status());
  const Store& store = *opened;
  Kept kept;
  kept.last_sequence = store.Metrics().last_sequence;
  kept.note = store.recovery_note();
  CAIRN_ASSIGN_OR_RETURN(kept.branches, AllBranches(store));
  CAIRN_ASSIGN_OR_RETURN(kept.objects, Objects(store).Usage());
  return kept;
}

// Why the store does not open, or "". Damaged payload alone is no reason: it is served around.
Result<std::string> WhatIsWrong(const std::string& path) {
  const Result<Store> store = OpenForReading(path);
  if (store.ok()) return std::string();
  if (store.status().code() != StatusCode::kCorruption) return store.status();
  return std::string(store.status().message());
}

// A cut is made in a log; where there is none, only its files help.
Status CheckLogIsThere(io::FileSystem& files, const std::string& path) {
  const std::string log = io::JoinPath(path, "log");
  const auto info = files.Info(log);
  if (!info.ok() && info.status().code() != StatusCode::kNotFound) return info.status();
  if (info.ok() && info->is_directory) return Status::Ok();
  return Status(StatusCode::kCorruption,
                log + ": the whole log is missing, so there is nothing to cut; put the directory " +
                    "back, or use a checkpoint of the store");
}

// --- Making it final

// Makes the new file `to`.
Status CopyFile(io::FileSystem& files, const std::string& from, const std::string& to) {
  CAIRN_ASSIGN_OR_RETURN(const auto source, files.Open(from, {}));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes, source->Size());
  CAIRN_ASSIGN_OR_RETURN(const auto target,
                         files.Open(to, {.write = true, .create = true, .exclusive = true}));
  std::vector<std::byte> buffer(kCopyBytes);
  for (uint64_t at = 0; at < bytes; at += kCopyBytes) {
    const auto piece = std::span(buffer).first(std::min<uint64_t>(kCopyBytes, bytes - at));
    CAIRN_RETURN_IF_ERROR(source->Read(at, piece));
    CAIRN_RETURN_IF_ERROR(target->Write(at, piece, /*durable=*/false));
  }
  return target->Sync();
}

// Copies of all segments that hold damage or cut records, beside them: opening for writing may
// reuse these files.
Result<std::vector<std::string>> KeepDamaged(io::FileSystem& files, const LogPlace& place,
                                             const CutFinder& finder) {
  std::vector<std::string> copies;
  for (const uint64_t segment : finder.segments) {
    const std::string from = wal::SegmentPath(place.directory, segment);
    const std::string to = from + ".damaged";
    const Status copied = CopyFile(files, from, to);
    if (copied.code() == StatusCode::kNotFound) continue;  // A missing file is damage, too.
    CAIRN_RETURN_IF_ERROR(copied.WithContext("a copy of the damaged segment"));
    copies.push_back(to);
  }
  return copies;
}

// The first record written behind the cut voids everything that lay there. It says nothing new: a
// branch gets the name that it has; without branches one is made and dropped.
Status WriteSomething(Store* store, const std::vector<BranchInfo>& branches) {
  for (const BranchInfo& info : branches) {
    if (info.name.empty()) continue;
    CAIRN_ASSIGN_OR_RETURN(Branch branch, store->GetBranch(info.id));
    return branch.Rename(info.name, Durability::kPower);
  }
  ModelSpec spec;
  spec.identity.name = "tokens";  // As `cairn append` would register it.
  const std::vector<ModelInfo> models = store->Models();
  ModelId model{};
  if (models.empty()) {
    CAIRN_ASSIGN_OR_RETURN(model, store->RegisterModel(spec));
  } else {
    model = models.front().id;
  }
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store->CreateBranch(model));
  return branch.Drop(Durability::kPower);
}

Status MakeFinal(const std::string& path, const Kept& kept) {
  Options options = WritingOptions();
  options.recovery = Recovery::kSetAside;
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(path, options));
  const Status written = WriteSomething(&store, kept.branches);
  const Status closed = store.Close();
  CAIRN_RETURN_IF_ERROR(written);
  CAIRN_RETURN_IF_ERROR(closed);
  return OpenForReading(path).status().WithContext("after the repair");
}

// --- Reporting

Json ReportToJson(const std::string& why, const Kept& kept, const CutFinder& finder, bool done,
                  const std::vector<std::string>& copies) {
  Json branches = Json::array();
  for (const BranchInfo& info : kept.branches) branches.push_back(ToJson(info));
  Json objects = Json::array();
  for (const NamespaceInfo& ns : kept.objects) {
    objects.push_back({{"ns", ns.name}, {"objects", ns.branches}});
  }
  Json damages = Json::array();
  for (const LogStop& stop : finder.damages) {
    damages.push_back({{"file", stop.path}, {"offset", stop.offset}, {"what", stop.what}});
  }
  Json cut = Json::array();
  for (const CutRecord& record : finder.cut) {
    cut.push_back({{"sequence", record.sequence}, {"what", record.text}});
  }
  Json cut_objects = Json::array();
  for (const CutObject& object : finder.objects.List()) {
    cut_objects.push_back(
        {{"ns", object.ns}, {"key", Escaped(object.key)}, {"sequence", object.sequence}});
  }
  return {{"damaged", true},
          {"repaired", done},
          {"why", why},
          {"gone", kept.note},
          {"damages", damages},
          {"kept",
           {{"last_sequence", kept.last_sequence}, {"branches", branches}, {"objects", objects}}},
          {"cut", cut},
          {"cut_objects", cut_objects},
          {"copies", copies}};
}

void PrintReport(const std::string& why, const Kept& kept, const CutFinder& finder) {
  std::printf("does not open: %s\n", Printable(why).c_str());
  if (!kept.note.empty()) std::printf("gone: %s\n", Printable(kept.note).c_str());
  for (const LogStop& stop : finder.damages) {
    std::printf("DAMAGED  %s: offset %" PRIu64 ": %s\n", Printable(stop.path).c_str(), stop.offset,
                Printable(stop.what).c_str());
  }
  uint64_t objects = 0;
  for (const NamespaceInfo& ns : kept.objects) objects += ns.branches;
  std::printf("kept: everything up to sequence %" PRIu64 "; %s, %s\n", kept.last_sequence,
              Plural(kept.branches.size(), "branch").c_str(), Plural(objects, "object").c_str());
  for (const BranchInfo& info : kept.branches) {
    std::printf("  %s: %s\n", LabelWithId(info).c_str(), Plural(info.length, "token").c_str());
  }
  std::printf("cut: what is damaged, and %s behind it that can be read\n",
              Plural(finder.cut.size(), "record").c_str());
  for (const CutRecord& record : finder.cut) {
    std::printf("  %" PRIu64 "  %s\n", record.sequence, record.text.c_str());
  }
  const std::vector<CutObject> lost = finder.objects.List();
  if (lost.empty()) return;
  std::printf("cut with them: %s\n", Plural(lost.size(), "object").c_str());
  for (const CutObject& object : lost) {
    std::printf("  %s%s\n", Escaped(object.key).c_str(),
                object.ns.empty() ? "" : (" of namespace " + Quoted(object.ns)).c_str());
  }
}

Result<int> RunRepair(const RepairArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const std::string why, WhatIsWrong(arguments.store));
  if (why.empty()) {
    if (json) {
      PrintJson({{"damaged", false}, {"repaired", false}});
    } else {
      std::printf(
          "%s: opens as it is, so there is nothing to cut; damaged payload and tables, or "
          "tables that are missing, are found by: cairn verify --all %s\n",
          arguments.store.c_str(), ShellWord(arguments.store).c_str());
    }
    return kExitOk;
  }
  CAIRN_ASSIGN_OR_RETURN(io::World world, WorldOfStore(arguments.store));
  CAIRN_RETURN_IF_ERROR(CheckLogIsThere(*world.files, arguments.store));
  CAIRN_ASSIGN_OR_RETURN(const Kept kept, LookAtKept(arguments.store));
  std::string note;
  CAIRN_ASSIGN_OR_RETURN(const LogPlace place, FindLog(world, arguments.store, &note));
  CutFinder finder(kept.last_sequence, place.store);
  CAIRN_RETURN_IF_ERROR(WalkLog(world, place, &finder));

  std::vector<std::string> copies;
  if (arguments.yes) {
    // Before anything is copied; opening the store takes the lock again.
    CAIRN_RETURN_IF_ERROR(world.files->Lock(io::JoinPath(arguments.store, "LOCK")).status());
    if (arguments.keep) {
      CAIRN_ASSIGN_OR_RETURN(copies, KeepDamaged(*world.files, place, finder));
    }
    CAIRN_RETURN_IF_ERROR(MakeFinal(arguments.store, kept));
  }
  if (json) {
    PrintJson(ReportToJson(why, kept, finder, arguments.yes, copies));
    return arguments.yes ? kExitOk : kExitDamage;
  }
  PrintReport(why, kept, finder);
  for (const std::string& copy : copies) std::printf("copy: %s\n", copy.c_str());
  std::printf(arguments.yes ? "repaired: the cut is final\n"
                            : "nothing was changed; --yes makes the cut final\n");
  return arguments.yes ? kExitOk : kExitDamage;
}

}  // namespace

void AddRepairCommand(CLI::App& app, Session& session) {
  const auto repair = std::make_shared<RepairArguments>();
  CLI::App* command = AddCommand(
      app, session, "repair", Access::kLooksUnlessTold,
      "Show what of a damaged store can be kept; with --yes, keep it\n\n"
      "Needed when a store does not open because its log, or a table of its index, is damaged or\n"
      "missing. Without --yes nothing is changed, and the exit code is 4 when there is something "
      "to\n"
      "repair. With it the store is opened with Recovery::kSetAside: branches of which a record "
      "is\n"
      "lost are gone, and damaged files move to lost/<time>/ in the store, which takes 1/16 of\n"
      "max_bytes at most (1 GiB without a cap). A damaged MANIFEST, OPTIONS, or header of the "
      "log's\n"
      "first segment cannot be mended: they say what the store is.\n"
      "\n"
      "A store with damage in payload alone opens and serves what is whole, and there is\n"
      "nothing to cut (cairn verify --all lists the damage). But damaged bytes of the log\n"
      "cannot be packed while a branch needs them: cairn compact does the rest and fails with\n"
      "exit code 4, and the log from there on is not given back. Drop the branch, or rewind it\n"
      "below the damage.",
      "  cairn repair state            # look first\n"
      "  cairn repair state --yes",
      repair, RunRepair);
  AddStoreArgument(command, &repair->store);
  command->add_flag("--yes", repair->yes, "Do it: what is cut is gone for good");
  command->add_flag("!--no-keep", repair->keep,
                    "Do not keep copies (*.damaged) of the segment files that have damage");
}

}  // namespace cairn::cli
