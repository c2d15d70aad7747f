// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/trace_reader.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/core/check.h"

namespace cairn::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A prompt of more tokens is a mistake, not a prompt: products with it must not overflow.
constexpr uint64_t kMaxTokens = uint64_t{1} << 32;
constexpr uint64_t kMaxBlockTokens = 1 << 20;

Status Bad(const std::string& where, const std::string& what) {
  return Status(StatusCode::kCorruption, where + ": " + what);
}

Result<json> Parse(const std::string& where, std::string_view text) {
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    return Bad(where, error.what());
  }
}

Result<uint64_t> Number(const json& object, const char* field, uint64_t max,
                        const std::string& where) {
  const auto found = object.find(field);
  if (found == object.end()) return Bad(where, std::string("there is no \"") + field + "\"");
  if (!found->is_number_unsigned() || found->get<uint64_t>() > max) {
    return Bad(where, std::string("\"") + field + "\" is " + found->dump() +
                          ", not a whole number up to " + std::to_string(max));
  }
  return found->get<uint64_t>();
}

// The names differ between the formats.
Result<TraceRequest> ReadRequest(const json& object, const char* input, const char* output,
                                 uint32_t block_tokens, std::string where) {
  if (!object.is_object()) return Bad(where, "a request is an object, not " + object.dump());
  TraceRequest request;
  CAIRN_ASSIGN_OR_RETURN(request.input_tokens, Number(object, input, kMaxTokens, where));
  CAIRN_ASSIGN_OR_RETURN(request.output_tokens, Number(object, output, kMaxTokens, where));
  const auto ids = object.find("hash_ids");
  if (ids == object.end() || !ids->is_array()) {
    return Bad(where, "there is no list \"hash_ids\"");
  }
  const uint64_t blocks = (request.input_tokens + block_tokens - 1) / block_tokens;
  if (ids->size() > blocks) {
    return Bad(where, std::to_string(ids->size()) + " hash_ids for a prompt of " +
                          std::to_string(request.input_tokens) + " tokens, which has " +
                          std::to_string(blocks) + " blocks of " + std::to_string(block_tokens));
  }
  request.ids.reserve(ids->size());
  for (const json& id : *ids) {
    if (!id.is_number_unsigned()) return Bad(where, "hash id " + id.dump() + " is not a number");
    request.ids.push_back(id.get<uint64_t>());
  }
  request.where = std::move(where);
  return request;
}

// A sub-agent is an entry that holds requests of its own; they came in its place.
Status ReadRequests(const json& list, uint32_t block_tokens, const std::string& where,
                    TraceSession* session) {
  if (!list.is_array()) return Bad(where, "\"requests\" is not a list");
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string here = where + " requests[" + std::to_string(i) + "]";
    if (list[i].is_object() && list[i].contains("requests")) {
      CAIRN_RETURN_IF_ERROR(ReadRequests(list[i]["requests"], block_tokens, here, session));
      continue;
    }
    CAIRN_ASSIGN_OR_RETURN(TraceRequest request,
                           ReadRequest(list[i], "in", "out", block_tokens, here));
    session->requests.push_back(std::move(request));
  }
  return Status::Ok();
}

Result<TraceSession> ReadAgentSession(const std::string& name, std::string_view text) {
  CAIRN_ASSIGN_OR_RETURN(const json object, Parse(name, text));
  if (!object.is_object()) return Bad(name, "a session is an object");
  TraceSession session;
  CAIRN_ASSIGN_OR_RETURN(const uint64_t block, Number(object, "block_size", kMaxBlockTokens, name));
  if (block == 0) return Bad(name, "\"block_size\" is 0");
  session.block_tokens = static_cast<uint32_t>(block);
  const json scope = object.value("hash_id_scope", json("local"));
  if (scope != "local" && scope != "global") {
    return Bad(name, "\"hash_id_scope\" is " + scope.dump() + ", neither local nor global");
  }
  session.shares_ids = scope == "global";
  if (!object.contains("requests")) return Bad(name, "there is no \"requests\"");
  CAIRN_RETURN_IF_ERROR(ReadRequests(object["requests"], session.block_tokens, name, &session));
  return session;
}

Result<TraceSession> ReadRequestLines(const std::string& name, std::string_view text,
                                      uint32_t block_tokens) {
  TraceSession session;
  session.block_tokens = block_tokens;
  for (uint64_t number = 1; !text.empty(); ++number) {
    const size_t length = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = name + ":" + std::to_string(number);
    CAIRN_ASSIGN_OR_RETURN(const json object, Parse(where, line));
    CAIRN_ASSIGN_OR_RETURN(TraceRequest request, ReadRequest(object, "input_length",
                                                             "output_length", block_tokens, where));
    session.requests.push_back(std::move(request));
  }
  return session;
}

// "a/trace.jsonl.zst" -> "a/trace.jsonl".
std::string WithoutCompression(std::string name) {
  constexpr std::array kSuffixes = {".zst", ".gz", ".xz", ".bz2", ".lz4"};
  for (const std::string_view suffix : kSuffixes) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return name;
}

// One archive, or one file that is read as an archive of one entry.
class Unpacker {
 public:
  explicit Unpacker(std::string path) : path_(std::move(path)), archive_(archive_read_new()) {}
  ~Unpacker() { archive_read_free(archive_); }
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  Status Open() {
    constexpr size_t kReadBytes = 1 << 20;
    archive_read_support_filter_all(archive_);
    archive_read_support_format_tar(archive_);
    archive_read_support_format_raw(archive_);
    archive_read_support_format_empty(archive_);
    return Check(archive_read_open_filename(archive_, path_.c_str(), kReadBytes));
  }

  // The next regular file; false at the end. `name` is "archive.tar.zst/file" or the path itself.
  Result<bool> Next(std::string* name, std::string* content) {
    archive_entry* entry = nullptr;
    do {
      const int code = archive_read_next_header(archive_, &entry);
      if (code == ARCHIVE_EOF) return false;
      CAIRN_RETURN_IF_ERROR(Check(code));
    } while (archive_entry_filetype(entry) != AE_IFREG);
    const bool raw = archive_format(archive_) == ARCHIVE_FORMAT_RAW;
    const char* inside = archive_entry_pathname(entry);
    *name = raw || inside == nullptr ? path_ : path_ + "/" + inside;
    content->clear();
    std::array<char, 64 << 10> chunk{};
    while (true) {
      const la_ssize_t count = archive_read_data(archive_, chunk.data(), chunk.size());
      if (count < 0) return Error();
      if (count == 0) return true;
      content->append(chunk.data(), static_cast<size_t>(count));
    }
  }

 private:
  Status Check(int code) const { return code >= ARCHIVE_WARN ? Status::Ok() : Error(); }
  Status Error() const {
    const char* what = archive_error_string(archive_);
    return Status(StatusCode::kIoError, path_ + ": " + (what != nullptr ? what : "unreadable"));
  }

  std::string path_;
  archive* archive_;
};

class FileTraceReader : public TraceReader {
 public:
  FileTraceReader(std::vector<std::string> paths, uint32_t block_tokens)
      : paths_(std::move(paths)), block_tokens_(block_tokens) {}

  Result<std::optional<TraceSession>> Next() override {
    std::string name, content;
    while (true) {
      if (unpacker_ == nullptr) {
        if (next_path_ == paths_.size()) return std::optional<TraceSession>();
        unpacker_ = std::make_unique<Unpacker>(paths_[next_path_++]);
        CAIRN_RETURN_IF_ERROR(unpacker_->Open());
      }
      CAIRN_ASSIGN_OR_RETURN(const bool more, unpacker_->Next(&name, &content));
      if (!more) {
        unpacker_.reset();
        continue;
      }
      CAIRN_ASSIGN_OR_RETURN(TraceSession session, Read(name, content));
      if (!session.requests.empty()) return std::optional(std::move(session));
    }
  }

 private:
  Result<TraceSession> Read(const std::string& name, std::string_view content) const {
    const std::string plain = WithoutCompression(name);
    if (plain.ends_with(".jsonl")) return ReadRequestLines(name, content, block_tokens_);
    if (plain.ends_with(".json")) return ReadAgentSession(name, content);
    return Bad(name, "a trace is *.json (a session), *.jsonl (requests), or a tar file of those");
  }

  std::vector<std::string> paths_;
  const uint32_t block_tokens_;
  size_t next_path_ = 0;
  std::unique_ptr<Unpacker> unpacker_{};
};

}  // namespace

Result<std::unique_ptr<TraceReader>> TraceReader::Open(const std::string& path,
                                                       uint32_t block_tokens) {
  std::vector<std::string> paths;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return Status(StatusCode::kNotFound, path + ": there is no such trace");
  if (fs::is_directory(status)) {
    for (const auto& entry : fs::directory_iterator(path, error)) {
      const std::string name = WithoutCompression(entry.path());
      if (name.ends_with(".json") || name.ends_with(".jsonl")) paths.push_back(entry.path());
    }
    if (error) return Status(StatusCode::kIoError, path + ": " + error.message());
    std::sort(paths.begin(), paths.end());
    if (paths.empty()) {
      return Status(StatusCode::kNotFound, path + ": no *.json or *.jsonl in this directory");
    }
  } else {
    paths.push_back(path);
  }
  return std::unique_ptr<TraceReader>(
      std::make_unique<FileTraceReader>(std::move(paths), block_tokens));
}

}  // namespace cairn::bench
