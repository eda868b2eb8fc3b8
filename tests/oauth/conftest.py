from tests.node.oidc_server import oidc_server

__all__ = ("oidc_server",)
