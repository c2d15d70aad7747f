// SPDX-License-Identifier: Apache-2.0
#include "base/io/path.h"

namespace cairn::io {

std::string_view WithoutTrailingSlashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

Status CheckPath(std::string_view path) {
  if (path.empty()) return Status(StatusCode::kInvalidArgument, "the path is empty");
  const size_t zero = path.find('\0');
  if (zero == std::string_view::npos) return Status::Ok();
  return Status(StatusCode::kInvalidArgument,
                "the path \"" + std::string(path.substr(0, zero)) + "...\" has a zero byte");
}

std::string JoinPath(std::string_view directory, std::string_view name) {
  std::string path(directory);
  if (!path.empty() && path.back() != '/') path += '/';
  return path.append(name);
}

std::string ParentPath(std::string_view path) {
  path = WithoutTrailingSlashes(path);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  if (slash == 0) return "/";
  return std::string(WithoutTrailingSlashes(path.substr(0, slash)));
}

std::string BaseName(std::string_view path) {
  path = WithoutTrailingSlashes(path);
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

std::string NormalPath(std::string_view path) {
  std::string normal;
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (!part.empty() && part != ".") {
      if (!normal.empty()) normal += '/';
      normal += part;
    }
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  }
  return normal;
}

}  // namespace cairn::io
