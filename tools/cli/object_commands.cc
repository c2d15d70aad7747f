// SPDX-License-Identifier: Apache-2.0
//
// objects: bytes under keys of the caller's own.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <optional>

#include "base/core/check.h"
#include "cairn/objects.h"
#include "tools/cli/command.h"
#include "tools/cli/names.h"
#include "tools/cli/output.h"
#include "tools/cli/progress_bar.h"
#include "tools/cli/seen_objects.h"

namespace cairn::cli {

namespace {

constexpr const char* kKeyHelp = "The key, as ls prints it: \\xNN is a byte";
constexpr std::streamsize kReadAtOnce = 1 << 20;
constexpr std::chrono::milliseconds kProgressEvery{100};

struct ObjectArguments {
  std::string store, ns, key, file, object_class = "bytes";
  uint64_t page_bytes = 4096;
  uint64_t depth = 0;
  size_t limit = kListedAtOnce;
  std::string cursor;
  bool replace = false;
  Durability durability = Durability::kPower;
};

Result<std::string> ParseKey(const std::string& word) {
  Result<std::string> key = Unescaped(word);
  if (!key.ok()) return key.status().WithContext("KEY");
  return key;
}

Status NoObject(const std::string& key) {
  return Status(StatusCode::kNotFound, "no object has the key " + Quoted(key));
}

Json ObjectToJson(const ObjectInfo& info) {
  return {{"key", Escaped(info.key)},
          {"class", info.object_class.name},
          {"page_bytes", info.object_class.page_bytes},
          {"dtype", DtypeName(info.object_class.dtype)},
          {"pages", info.pages},
          {"bytes", info.bytes},
          {"depth", info.depth},
          {"pinned", info.pinned},
          {"ttl_ns", info.ttl_ns},
          {"put_at_ns", info.put_at_ns},
          {"used_at_ns", info.used_at_ns}};
}

Result<int> RunLs(const ObjectArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(arguments.store));
  CAIRN_ASSIGN_OR_RETURN(const std::string cursor, ParseKey(arguments.cursor));
  CAIRN_ASSIGN_OR_RETURN(const ObjectPage page,
                         Objects(store).List(arguments.ns, arguments.limit, cursor));
  Json list = Json::array();
  TextTable table({"KEY", "CLASS", "UP TO", "DEPTH", "PUT"}, {2, 3});
  for (const ObjectInfo& info : page.objects) {
    list.push_back(ObjectToJson(info));
    table.Add({Escaped(info.key), Printable(info.object_class.name), BytesText(info.bytes),
               std::to_string(info.depth), TimeText(info.put_at_ns)});
  }
  if (json) {
    PrintJson({{"objects", list}, {"cursor", Escaped(page.cursor)}});
    return kExitOk;
  }
  std::printf("%s", table.ToString().c_str());
  if (!page.cursor.empty()) {
    std::printf("more: --cursor %s\n", ShellWord(Escaped(page.cursor)).c_str());
  }
  return kExitOk;
}

Result<int> RunStat(const ObjectArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(arguments.store));
  if (arguments.key.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const SeenObjects seen, SeeObjects(store));
    if (json) {
      PrintJson({{"namespaces", ToJson(seen)}});
    } else {
      std::printf("%s", TableText(seen).c_str());
    }
    return kExitOk;
  }
  CAIRN_ASSIGN_OR_RETURN(const std::string key, ParseKey(arguments.key));
  const Result<ObjectInfo> info = Objects(store).Stat(key, arguments.ns);
  if (info.status().code() == StatusCode::kNotFound) return NoObject(key);
  CAIRN_RETURN_IF_ERROR(info.status());
  if (json) {
    PrintJson(ObjectToJson(*info));
  } else {
    std::printf("%s: %s, %s of class %s, depth %u, put %s\n", Escaped(key).c_str(),
                Plural(info->bytes, "byte").c_str(), Plural(info->pages, "page").c_str(),
                Printable(info->object_class.name).c_str(), info->depth,
                TimeText(info->put_at_ns).c_str());
  }
  return kExitOk;
}

Result<std::vector<char>> ReadAll(const std::string& path, ProgressBar* bar) {
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  std::istream& from = path == "-" ? std::cin : file;
  if (!from) return Status(StatusCode::kNotFound, Printable(path) + ": cannot be read");
  std::error_code unknown;  // The size of a pipe.
  const uint64_t total = path == "-" ? 0 : std::filesystem::file_size(path, unknown);
  std::vector<char> bytes;
  std::vector<char> piece(kReadAtOnce);
  while (from) {
    from.read(piece.data(), kReadAtOnce);
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + from.gcount());
    const uint64_t of = unknown ? 0 : total;
    bar->Update(of == 0 ? 0 : bytes.size(), std::max<uint64_t>(of, 1),
                BytesText(bytes.size()) + (of == 0 ? "" : " of " + BytesText(of)) + " read");
  }
  if (from.bad()) return Status(StatusCode::kIoError, Printable(path) + ": cannot be read");
  return bytes;
}

// Calls `put`, and shows how much of `bytes` has been written meanwhile.
template <typename Put>
auto ShowingProgress(const Store& store, uint64_t bytes, ProgressBar* bar, const Put& put)
    -> decltype(put()) {
  const auto written = [&store] {
    const StoreMetrics metrics = store.Metrics();
    return metrics.log_bytes_written + metrics.table_bytes_written;
  };
  const uint64_t before = written();
  auto result = std::async(std::launch::async, put);
  while (result.wait_for(kProgressEvery) != std::future_status::ready) {
    const uint64_t done = std::min(written() - before, bytes);
    bar->Update(done, bytes, BytesText(done) + " of " + BytesText(bytes) + " written");
  }
  return result.get();
}

Result<int> RunPut(const ObjectArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const std::string key, ParseKey(arguments.key));
  std::optional<ProgressBar> bar(std::in_place, !json);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<char> bytes, ReadAll(arguments.file, &*bar));
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenForWriting(arguments.store));
  const auto run = [&]() -> Result<int> {
    Objects objects(store);
    CAIRN_ASSIGN_OR_RETURN(
        const ObjectClassId object_class,
        objects.RegisterClass({.name = arguments.object_class,
                               .page_bytes = static_cast<uint32_t>(arguments.page_bytes)}));
    const ObjectPut put{.key = key,
                        .value = std::as_bytes(std::span(bytes)),
                        .depth = static_cast<uint32_t>(arguments.depth)};
    const PutOptions options{
        .ns = arguments.ns,
        .object_class = object_class,
        .if_present = arguments.replace ? IfPresent::kReplace : IfPresent::kKeep,
        .durability = arguments.durability};
    CAIRN_ASSIGN_OR_RETURN(const std::vector<PutResult> results,
                           ShowingProgress(store, bytes.size(), &*bar, [&] {
                             return objects.PutBatch({&put, 1}, options);
                           }));
    bar.reset();
    CAIRN_RETURN_IF_ERROR(results[0].status);
    if (json) {
      PrintJson({{"key", Escaped(key)}, {"bytes", bytes.size()}, {"stored", results[0].stored}});
    } else {
      std::printf("%s: %s\n", Escaped(key).c_str(),
                  results[0].stored ? Plural(bytes.size(), "byte").c_str()
                                    : "is there already, and was kept (--replace)");
    }
    return kExitOk;
  };
  return CloseAfter(&store, run());
}

Result<int> RunGet(const ObjectArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const std::string key, ParseKey(arguments.key));
  CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(arguments.store));
  const Objects objects(store);
  Result<ObjectInfo> info = objects.Stat(key, arguments.ns);
  std::vector<std::byte> bytes;
  while (info.ok()) {
    bytes.resize(info->bytes);
    const ObjectGet get{.key = key, .into = bytes};
    CAIRN_ASSIGN_OR_RETURN(const std::vector<GetResult> got,
                           objects.GetBatch({&get, 1}, {.ns = arguments.ns}));
    const bool grew = got[0].bytes > bytes.size();
    if (grew || got[0].status.code() == StatusCode::kNotFound) {  // By a writer beside.
      info = objects.Stat(key, arguments.ns);
      continue;
    }
    CAIRN_RETURN_IF_ERROR(got[0].status);
    bytes.resize(got[0].bytes);
    break;
  }
  if (info.status().code() == StatusCode::kNotFound) return NoObject(key);
  CAIRN_RETURN_IF_ERROR(info.status());
  if (json) {
    Json value = ObjectToJson(*info);
    value["bytes"] = bytes.size();
    value["hex"] = Hex(bytes);
    PrintJson(value);
    return kExitOk;
  }
  if (arguments.file == "-") {  // Whether it could be written main asks.
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
    return kExitOk;
  }
  std::ofstream file(arguments.file, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (file) return kExitOk;
  return Status(StatusCode::kIoError, Printable(arguments.file) + ": cannot be written");
}

Result<int> RunRm(const ObjectArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const std::string key, ParseKey(arguments.key));
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenForWriting(arguments.store));
  const auto run = [&]() -> Result<int> {
    const std::string_view keys[] = {key};
    CAIRN_ASSIGN_OR_RETURN(const std::vector<Status> outcomes,
                           Objects(store).Delete(keys, arguments.ns, arguments.durability));
    if (outcomes[0].code() == StatusCode::kNotFound) return NoObject(key);
    CAIRN_RETURN_IF_ERROR(outcomes[0]);
    if (json) PrintJson({{"key", Escaped(key)}});
    return kExitOk;
  };
  return CloseAfter(&store, run());
}

void AddSpaceOption(CLI::App* command, std::string* ns) {
  const auto read = [](std::string& word) -> std::string {
    const Result<std::string> plain = ReadNamespace(word);
    if (plain.ok()) word = *plain;
    return plain.ok() ? "" : std::string(plain.status().message());
  };
  command->add_option("--ns", *ns, "Namespace of objects; '' is the default one")
      ->transform(CLI::Validator(read, ""));
}

void AddKeyArguments(CLI::App* command, const std::shared_ptr<ObjectArguments>& arguments,
                     bool key_required) {
  AddStoreArgument(command, &arguments->store);
  CLI::Option* const key = command->add_option("KEY", arguments->key, kKeyHelp);
  if (key_required) key->required();
  AddSpaceOption(command, &arguments->ns);
}

}  // namespace

void AddObjectCommands(CLI::App& app, Session& session) {
  session.commands[Access::kLooksUnlessTold].push_back("objects");
  CLI::App* const objects = app.add_subcommand(
      "objects",
      "Bytes under keys of the caller's own: ls, stat, get; put and rm change the store\n"
      "They have namespaces of their own and are no branches.");
  objects->require_subcommand(1);
  const auto add = [&](const char* name, const std::string& text, const std::string& examples,
                       Result<int> (*run)(const ObjectArguments&, bool), bool has_key,
                       bool key_required) {
    const auto arguments = std::make_shared<ObjectArguments>();
    CLI::App* const command =
        AddSubcommand(*objects, session, name, text, examples, arguments, run);
    if (has_key) {
      AddKeyArguments(command, arguments, key_required);
    } else {
      AddStoreArgument(command, &arguments->store);
      AddSpaceOption(command, &arguments->ns);
    }
    return std::pair(command, arguments);
  };
  const auto [ls, ls_arguments] =
      add("ls", "List objects in order of key\nSizes are those of whole pages: see stat.",
          "  cairn objects ls notes --limit 20", RunLs, false, false);
  AddNumberOption(ls, "--limit", &ls_arguments->limit, "At most so many")
      ->check(CLI::Range(1, 1 << 20));
  ls->add_option("--cursor", ls_arguments->cursor, "Behind what an earlier list ended with");
  add("stat", "Show an object, or what each namespace holds", "  cairn objects stat notes page-7",
      RunStat, true, false);
  const auto [put, put_arguments] =
      add("put", "Put a file, or standard input, under a key\nWhat is there is kept, unless told.",
          "  cairn objects put notes page-7 page.bin\n"
          "  printf hello | cairn objects put notes greeting --replace",
          RunPut, true, true);
  put->add_option("FILE", put_arguments->file, "What to put; - is standard input")
      ->default_val("-");
  put->add_option("--class", put_arguments->object_class, "Class of objects, made if need be");
  AddNumberOption(put, "--page-bytes", &put_arguments->page_bytes, "Of a class that is made")
      ->check(CLI::Range(uint64_t{kMinObjectPageBytes}, uint64_t{kMaxObjectPageBytes}));
  AddNumberOption(put, "--depth", &put_arguments->depth, "The deeper are evicted first")
      ->check(CLI::Range(uint64_t{0}, uint64_t{UINT32_MAX}));
  put->add_flag("--replace", put_arguments->replace, "Instead of what is there");
  AddDurabilityOption(put, &put_arguments->durability);
  const auto [get, get_arguments] = add("get", "Write an object to a file, or to standard output",
                                        "  cairn objects get notes greeting", RunGet, true, true);
  get->add_option("FILE", get_arguments->file, "Where to; - is standard output")->default_val("-");
  const auto [rm, rm_arguments] =
      add("rm", "Delete an object", "  cairn objects rm notes greeting", RunRm, true, true);
  AddDurabilityOption(rm, &rm_arguments->durability);
}

}  // namespace cairn::cli
